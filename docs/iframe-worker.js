"use strict";
// A browser starts no worker from a file: there the script of the search runs in a frame of the page.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          const script = this.frame.contentDocument.createElement("script");
          script.onload = resolve;
          script.onerror = (event) => this.onerror?.(event);
          script.src = new URL(url, location.href);
          this.frame.contentWindow.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
          this.frame.contentDocument.body.append(script);
        };
      });
      document.body.append(this.frame);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow?.onmessage({ data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
