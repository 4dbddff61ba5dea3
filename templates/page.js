"use strict";
const pools = [...document.querySelectorAll(".pool")];
const tools = document.querySelector(".tools");
// A plan without changes has no pools.
if (tools) {
  const search = document.getElementById("search");
  const fold = document.getElementById("fold");
  const found = document.getElementById("found");
  tools.hidden = false;
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const pool of pools) {
      pool.hidden = !words.every((word) => pool.dataset.text.includes(word));
      shown += pool.hidden ? 0 : 1;
    }
    found.textContent = words.length ? `${shown} of ${pools.length} pools` : "";
  });
  const setFold = (isFolded) => {
    for (const pool of pools) pool.open = !isFolded;
    fold.setAttribute("aria-pressed", String(isFolded));
    fold.textContent = isFolded ? "Unfold all" : "Fold all";
  };
  fold.addEventListener("click", () => setFold(fold.getAttribute("aria-pressed") !== "true"));
  if (pools.length && !pools[0].open) setFold(true);
}
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
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
