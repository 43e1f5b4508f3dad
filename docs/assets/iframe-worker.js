// A page that is opened from a folder, without a server, may start no worker: the theme's search runs in a hidden frame there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      Object.assign(frame, {hidden: true, title: "Search"});
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      this.inside.importScripts = (...names) => Promise.all(names.map((name) => this.run(name)));
      this.ready = this.run(address);
    }
    run(address) {
      const script = document.createElement("script");
      const loaded = new Promise((resolve) => script.addEventListener("load", resolve));
      script.src = address;
      this.inside.document.body.append(script);
      return loaded;
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
