// Search from the disk. A page of file:// may not start a worker, so an iframe without a picture takes its place: it has the
// interface of a Worker that the search uses. The theme's own stand-in comes from another host, which the site must not need.
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      this.ready = new Promise((resolve) => { inside.ready = resolve; });
      window.addEventListener("message", (event) => {
        if (event.source === inside) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      inside.document.open();
      inside.document.write(`<script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...urls) => urls.reduce((before, src) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = src;
          script.onload = done;
          document.body.append(script);
        })), Promise.resolve());
      <\/script><body><script src="${url}" onload="ready()"><\/script></body>`);
      inside.document.close();
    }
    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
