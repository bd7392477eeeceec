// Applies the updates of /live to the page, and changes only the parts that differ, so that
// scroll, focus and selection stay. Without scripts the page is complete, too.
"use strict";

(() => {
  const freshness = document.getElementById("freshness");
  const word = document.getElementById("freshness-word");
  const clock = document.getElementById("clock");
  const broken = document.getElementById("broken");
  let stream = null;
  let heard = Date.now(); // the time of the last message
  let again = 0; // the timer of the next connection
  const patience = 30_000; // longer than a reading of the kernel

  // same reports whether two nodes are one row, or one element, at two times.
  const same = (a, b) =>
    a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  const key = (n) => (n.nodeType === Node.ELEMENT_NODE && n.dataset ? n.dataset.key ?? n.id : "");

  // become makes the node a equal to b, with the fewest changes.
  function become(a, b) {
    if (a.isEqualNode(b)) return;
    if (a.nodeType !== Node.ELEMENT_NODE) {
      a.nodeValue = b.nodeValue;
      return;
    }
    for (const { name } of [...a.attributes]) {
      if (!b.hasAttribute(name)) a.removeAttribute(name);
    }
    for (const { name, value } of b.attributes) {
      if (a.getAttribute(name) !== value) a.setAttribute(name, value);
    }
    const keyed = new Map();
    for (const c of a.children) {
      if (key(c)) keyed.set(key(c), c);
    }
    let at = a.firstChild;
    for (const wanted of [...b.childNodes]) {
      let have = key(wanted) ? keyed.get(key(wanted)) : at;
      if (have && key(wanted) && have !== at && same(have, wanted)) a.insertBefore(have, at);
      if (have && same(have, wanted)) {
        become(have, wanted);
        at = have.nextSibling;
      } else {
        a.insertBefore(wanted, at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  function take(event) {
    heard = Date.now();
    const news = JSON.parse(event.data);
    for (const [id, html] of Object.entries(news.parts)) {
      const have = document.getElementById(id);
      const made = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
      if (have && made) become(have, document.adoptNode(made));
    }
    if (clock.textContent !== news.at) clock.textContent = news.at;
    if (document.title !== news.title) document.title = news.title;
    document.body.dataset.state = news.state;
    live();
  }

  function live() {
    freshness.dataset.live = "yes";
    word.textContent = "live,";
    broken.hidden = true;
  }

  function lost() {
    if (freshness.dataset.live === "broken") return;
    freshness.dataset.live = "broken";
    word.textContent = "last updated";
    broken.textContent = "No connection since " + new Date(heard).toTimeString().slice(0, 8) +
      ": the page shows the state of that time. Reconnecting.";
    broken.hidden = false;
  }

  function connect() {
    disconnect();
    const asked = new URLSearchParams(location.search);
    asked.set("path", location.pathname);
    stream = new EventSource("/live?" + asked);
    stream.onmessage = take;
    stream.onerror = () => {
      lost();
      // The browser does not retry a refused stream.
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000);
    };
  }

  function disconnect() {
    clearTimeout(again);
    if (stream) stream.close();
    stream = null;
  }

  // A box without power does not close the stream.
  setInterval(() => {
    if (!stream || Date.now() - heard < patience) return;
    lost();
    heard = Math.max(heard, Date.now() - patience + 5000); // the next try is in five seconds
    connect();
  }, 1000);

  // A hidden page gets no updates.
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (e) => e.persisted && connect());

  // go follows another part of the same page, without leaving it.
  function go(address, keep) {
    history[keep ? "replaceState" : "pushState"](null, "", address);
    connect();
  }
  addEventListener("popstate", connect);
  document.addEventListener("click", (e) => {
    const a = e.target.closest?.("a[data-go]");
    if (!a || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    if (a.pathname !== location.pathname) return void (location.href = a.href);
    go(a.href);
  });

  const find = document.querySelector(".find");
  if (find) {
    let pause = 0;
    const look = () => {
      clearTimeout(pause);
      const asked = new URLSearchParams(location.search);
      for (const name of ["page", "at", "q"]) asked.delete(name);
      const text = find.elements.q.value.trim();
      if (text) asked.set("q", text);
      go(location.pathname + (asked.size ? "?" + asked : ""), true);
    };
    find.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(look, 250);
    });
    find.addEventListener("submit", (e) => {
      e.preventDefault();
      look();
    });
  }

  connect();
})();
