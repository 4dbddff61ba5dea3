"use strict";
const pools = [...document.querySelectorAll(".pool")];
const tools = document.querySelector(".tools");
const nameOf = (pool) => [...pool.querySelectorAll("h3, .nodes")].map((one) => one.textContent).join(" ").toLowerCase();
const texts = new Map();
// What is searched beside the name: what the page gives for that, else all that the card says.
const textOf = (pool) => {
  if (!texts.has(pool)) {
    const copy = pool.cloneNode(true);
    for (const one of copy.querySelectorAll("h3, .names")) one.remove();
    texts.set(pool, pool.dataset.text ?? copy.textContent.toLowerCase());
  }
  return texts.get(pool);
};
// A plan without changes has no pools.
if (tools) {
  const search = document.getElementById("search");
  const fold = document.getElementById("fold");
  const found = document.getElementById("found");
  tools.hidden = false;
  // The card of several pools is shown if one of them has all words, and lists those alone.
  const filter = (pool, words) => {
    const has = (name) => words.every((word) => name.includes(word) || textOf(pool).includes(word));
    const names = [...pool.querySelectorAll(".names li")];
    for (const one of names) one.hidden = !has(one.textContent.toLowerCase());
    const shown = names.length ? names.filter((one) => !one.hidden).length : Number(has(nameOf(pool)));
    pool.hidden = !shown;
    return [shown, names.length || 1];
  };
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const numbers = pools.map((pool) => filter(pool, words));
    const sum = (at) => numbers.reduce((all, one) => all + one[at], 0);
    found.textContent = words.length ? `${sum(0)} of ${sum(1)} pools` : "";
  });
  const setFold = (isFolded) => {
    for (const pool of pools) pool.open = !isFolded;
    fold.setAttribute("aria-pressed", String(isFolded));
    fold.textContent = isFolded ? "Unfold all" : "Fold all";
  };
  fold.addEventListener("click", () => setFold(fold.getAttribute("aria-pressed") !== "true"));
  if (pools.length && !pools[0].open) setFold(true);
}
// On a page of many pools their pods have one text in common; a pool's name may be a part of the other mark.
const fill = (pool) => {
  if (pool.dataset.pod === undefined) return;
  const text = document.getElementById(`pod-${pool.dataset.pod}`).content.textContent;
  const name = pool.id.replace(/^pools?-/, "");
  pool.querySelector("code").textContent = text.replaceAll("⟨pool⟩", () => name).replaceAll("⟨resource⟩", () => pool.dataset.resource);
};
for (const pool of pools) pool.addEventListener("toggle", () => { if (pool.open) fill(pool); });
addEventListener("beforeprint", () => {
  pools.forEach(fill);
  for (const one of document.querySelectorAll("details")) one.open = true;
});
const copied = (button) => {
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
};
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // A page from a file may have no clipboard: the selected text can be copied by the older call, or by hand.
      getSelection().selectAllChildren(code);
      if (!document.execCommand("copy")) return;
    }
    copied(button);
  });
}
