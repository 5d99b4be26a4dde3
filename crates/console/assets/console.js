// Live updates. Pages are whole without this: it swaps what has changed, only while somebody looks.
//
// A page marks regions by `data-live` and an id. An event of the stream is a hint that something changed: the page is
// fetched again without its frame, at most twice a second, and its regions are brought up to date node by node, so that
// focus, scroll, open folds and typed text stay. A record (`data-tail`) gets the rows that are new, and keeps so many.
(() => {
  "use strict";
  const GAP = 500, IDLE = 15000, AGAIN = 2000, ROWS = 1000;
  const KINDS = ["log", "transition", "refusal", "request"];
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  if (!main) return;

  const say = (state, words) => {
    if (!live || live.dataset.state === state && live.textContent === words) return;
    live.dataset.state = state;
    live.textContent = words;
  };

  // ---- bringing a page up to date ----

  const key = (node) => node.nodeType === 1 ? node.id || node.dataset.key || "" : "";
  const alike = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);

  const attributes = (old, fresh) => {
    // Whether a fold is open is the reader's to say.
    const kept = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name, value } of [...fresh.attributes])
      if (!kept(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!kept(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  };

  const children = (old, fresh) => {
    const wanted = new Set([...fresh.childNodes].map(key).filter(Boolean));
    const known = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]));
    let here = old.firstChild;
    const drop = () => { const next = here.nextSibling; here.remove(); here = next; };
    for (const node of [...fresh.childNodes]) {
      const name = key(node);
      while (here && key(here) && !wanted.has(key(here))) drop();
      let match = known.get(name) ?? null;
      // A node without a name is the next of its kind: what stood before it is gone.
      if (!name) for (match = here; match && !alike(match, node); ) match = match.nextSibling;
      if (match && alike(match, node)) {
        if (!name) while (here !== match) drop();
        if (match === here) here = here.nextSibling;
        else old.insertBefore(match, here);
        morph(match, node);
      } else {
        old.insertBefore(document.importNode(node, true), here);
      }
    }
    while (here) drop();
  };

  const morph = (old, fresh) => {
    if (old.nodeType === 3) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    if (old.nodeType !== 1 || old.isEqualNode(fresh)) return;
    if (!old.hasAttribute("data-tail")) { attributes(old, fresh); children(old, fresh); return; }
    // A record knows best how far it is; only where it is another one, such as that of the next try, it begins anew.
    if (old.dataset.tail === fresh.dataset.tail) return;
    attributes(old, fresh);
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
  };

  // ---- asking ----

  let timer = 0, last = -GAP, busy = false, again = false, out = false, boot = document.body.dataset.boot;
  const ask = (url) => fetch(url, { headers: { "x-tidemill-live": "1" }, cache: "no-store", credentials: "same-origin" });

  const refresh = async () => {
    timer = 0;
    if (document.hidden) return;
    if (busy) { again = true; return; }
    busy = true;
    last = performance.now();
    try {
      const answer = await ask(location.pathname + location.search);
      // Nothing is asked any more: what was answered next would say that the server is away.
      if (answer.redirected) { out = true; part(); say("lost", "You are signed out: reload the page"); return; }
      if (!answer.ok) throw new Error(String(answer.status));
      const now = answer.headers.get("x-tidemill-boot");
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const region of fresh.querySelectorAll("[data-live][id]")) {
        const old = document.getElementById(region.id);
        if (old) morph(old, region);
      }
      main.dataset.every = fresh.getElementById("main")?.dataset.every ?? "";
      if (now && boot !== now) {
        boot = now;
        const note = document.getElementById("restarted");
        if (note) note.hidden = false;
      }
      for (const list of document.querySelectorAll("[data-tail]")) await tail(list);
      if (!source || source.readyState === 1) say("live", "Live");
    } catch {
      say("lost", "No answer; trying again");
      setTimeout(hint, AGAIN);
    } finally {
      busy = false;
      if (again) { again = false; hint(); }
    }
  };

  const hint = () => {
    if (timer || out || document.hidden) return;
    timer = setTimeout(refresh, Math.max(0, last + GAP - performance.now()));
  };

  // Rows that are new, a page of them at a time; the oldest make room.
  const tail = async (list) => {
    if (!list.dataset.after) return;
    const answer = await ask(list.dataset.tail + encodeURIComponent(list.dataset.after));
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("ol");
    if (!fresh) return;
    const pinned = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (const row of [...fresh.children]) list.append(document.importNode(row, true));
    list.dataset.after = fresh.dataset.after;
    while (list.children.length > ROWS) list.firstElementChild.remove();
    if (pinned) list.scrollTop = list.scrollHeight;
    if (fresh.dataset.more) again = true;
  };

  // ---- the stream: open only while the page is seen ----

  let source = null, cursor = main.dataset.after || "";
  const connect = () => {
    const stream = main.dataset.stream;
    if (source || out || document.hidden || !stream) return;
    const place = cursor ? (stream.includes("?") ? "&" : "?") + "after=" + encodeURIComponent(cursor) : "";
    source = new EventSource(stream + place);
    source.onopen = () => { say("live", "Live"); hint(); };
    source.onerror = () => {
      say("lost", "No answer; trying again");
      // A stream that is refused says no more than that; the page itself is told why.
      if (source && source.readyState === 2) { part(); hint(); setTimeout(connect, AGAIN); }
    };
    // Only the page of a run shows what workers say; elsewhere a line of output changes nothing.
    for (const kind of KINDS.filter((kind) => kind !== "log" || main.dataset.after !== undefined))
      source.addEventListener(kind, (event) => { cursor = event.lastEventId || cursor; hint(); });
  };
  const part = () => { if (source) source.close(); source = null; };

  // A page that was made for one form, such as a question, is not to be had again by asking for its address.
  const still = !document.querySelector("[data-live]");
  document.addEventListener("visibilitychange", () => {
    if (out || still) return;
    if (document.hidden) { part(); say("", "Paused"); } else { connect(); hint(); }
  });
  addEventListener("pagehide", part);
  addEventListener("pageshow", (event) => { if (event.persisted && !still) { connect(); hint(); } });
  if (main.dataset.stream) {
    connect();
    const beat = () => { hint(); setTimeout(beat, Number(main.dataset.every) * 1000 || IDLE); };
    setTimeout(beat, Number(main.dataset.every) * 1000 || IDLE);
  }
  for (const list of document.querySelectorAll("[data-tail]")) list.scrollTop = list.scrollHeight;

  // ---- small comforts ----

  // What needs a script is shown where there is one.
  document.documentElement.dataset.script = "";
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
    }
  });
  document.addEventListener("change", (event) => {
    const all = event.target.closest("input[data-all]");
    if (all)
      for (const box of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  });
})();
