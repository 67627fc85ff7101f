// Search runs in a worker, which browsers refuse to pages opened from the disk. There a hidden frame
// runs the worker's script. The theme's own way is to load such a script from a public server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      this.receive = (event) => {
        if (event.source !== inner) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        this.onmessage?.(event);
      };
      addEventListener("message", this.receive);
      this.ready = new Promise((resolve) => { this.started = resolve; });
      inner.document.open();
      inner.document.write(
        `<body><script>
          postMessage = (message) => parent.postMessage(message, "*");
          importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
            const script = document.createElement("script");
            script.src = url;
            script.onload = done;
            document.body.append(script);
          })), Promise.resolve());
        <\/script><script src="${url}"><\/script></body>`
      );
      inner.document.close();
      inner.onload = this.started;
    }
    postMessage(message) {
      // The frame's own postMessage leads here.
      const data = structuredClone(message);
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    terminate() {
      removeEventListener("message", this.receive);
      this.frame.remove();
    }
  };
}
