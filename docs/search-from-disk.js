/* Search without a server. The theme then takes its index from a script, but a browser starts no
   worker from a file: it runs in a frame instead. With a server this does nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((done) => {
        const script = frame.contentDocument.createElement("script");
        script.src = address;
        script.onload = done;
        frame.contentDocument.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
