// Pages that are opened from the disk may not start workers, which the search of the theme is one of. There, and only
// there, a hidden frame takes the place of a worker: it runs the same script and passes the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...addresses) => {
        for (const each of addresses) await load(inside.document, each);
      };
      this.ready = load(inside.document, address);
      this.inside = inside;
      this.frame = frame;
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  const load = (page, address) =>
    new Promise((resolve, reject) => {
      const script = page.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${address}`));
      page.body.append(script);
    });
}
