// Live updates. Pages work without this script: it only updates the changed parts of a visible page.
//
// A page marks its regions with `data-live` and an id. An event of the stream triggers a refresh: the page is fetched
// again without its frame, at most twice a second. Its regions are updated node by node, so that focus, scroll
// position, open details and typed text are kept. A list with `data-tail` only gets its new rows, up to a maximum.
(() => {
  "use strict";
  const REFRESH_GAP = 500, IDLE_INTERVAL = 15000, RETRY_DELAY = 2000, ROWS_MAX = 1000;
  const KINDS = ["log", "transition", "refusal", "request"];
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  if (!main) return;

  const setStatus = (state, words) => {
    if (!live || live.dataset.state === state && live.textContent === words) return;
    live.dataset.state = state;
    live.textContent = words;
  };

  // ---- updating the page ----

  const key = (node) => node.nodeType === 1 ? node.id || node.dataset.key || "" : "";
  const alike = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);

  const attributes = (old, fresh) => {
    // The user decides whether details are open.
    const isUserState = (name) => name === "open" && old.nodeName === "DETAILS";
    for (const { name, value } of [...fresh.attributes])
      if (!isUserState(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!isUserState(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
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
      // A node without a key matches the next one of its kind; nodes before that are removed.
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
    // A tail list keeps its own position. It is only replaced by another list, such as that of the next attempt.
    if (old.dataset.tail === fresh.dataset.tail) return;
    attributes(old, fresh);
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
  };

  // ---- refreshing ----

  let timer = 0, last = -REFRESH_GAP, busy = false, again = false, signedOut = false, boot = document.body.dataset.boot;
  const request = (url) => fetch(url, { headers: { "x-tidemill-live": "1" }, cache: "no-store", credentials: "same-origin" });

  const refresh = async () => {
    timer = 0;
    if (document.hidden) return;
    if (busy) { again = true; return; }
    busy = true;
    last = performance.now();
    try {
      const response = await request(location.pathname + location.search);
      // All requests end here: further ones would only report that the server is unreachable.
      if (response.redirected) { signedOut = true; disconnect(); setStatus("lost", "Signed out; reload the page"); return; }
      if (!response.ok) throw new Error(String(response.status));
      const now = response.headers.get("x-tidemill-boot");
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
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
      if (!source || source.readyState === 1) setStatus("live", "Live");
    } catch {
      setStatus("lost", "No response; retrying");
      setTimeout(scheduleRefresh, RETRY_DELAY);
    } finally {
      busy = false;
      if (again) { again = false; scheduleRefresh(); }
    }
  };

  const scheduleRefresh = () => {
    if (timer || signedOut || document.hidden) return;
    timer = setTimeout(refresh, Math.max(0, last + REFRESH_GAP - performance.now()));
  };

  // Appends one page of new rows and removes the oldest ones.
  const tail = async (list) => {
    if (!list.dataset.after) return;
    const response = await request(list.dataset.tail + encodeURIComponent(list.dataset.after));
    if (!response.ok || response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html").querySelector("ol");
    if (!fresh) return;
    const pinned = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (const row of [...fresh.children]) list.append(document.importNode(row, true));
    list.dataset.after = fresh.dataset.after;
    while (list.children.length > ROWS_MAX) list.firstElementChild.remove();
    if (pinned) list.scrollTop = list.scrollHeight;
    if (fresh.dataset.more) again = true;
  };

  // ---- the event stream: open only while the page is visible ----

  let source = null, cursor = main.dataset.after || "";
  const connect = () => {
    const stream = main.dataset.stream;
    if (source || signedOut || document.hidden || !stream) return;
    const query = cursor ? (stream.includes("?") ? "&" : "?") + "after=" + encodeURIComponent(cursor) : "";
    source = new EventSource(stream + query);
    source.onopen = () => { setStatus("live", "Live"); scheduleRefresh(); };
    source.onerror = () => {
      setStatus("lost", "No response; retrying");
      // The browser does not tell why a stream is refused; the next refresh of the page does.
      if (source && source.readyState === 2) { disconnect(); scheduleRefresh(); setTimeout(connect, RETRY_DELAY); }
    };
    // Only the page of a run shows log events; on other pages they change nothing.
    for (const kind of KINDS.filter((kind) => kind !== "log" || main.dataset.after !== undefined))
      source.addEventListener(kind, (event) => { cursor = event.lastEventId || cursor; scheduleRefresh(); });
  };
  const disconnect = () => { if (source) source.close(); source = null; };

  // A response to a form, such as a confirmation page, cannot be refreshed from its address.
  const isStatic = !document.querySelector("[data-live]");
  document.addEventListener("visibilitychange", () => {
    if (signedOut || isStatic) return;
    if (document.hidden) { disconnect(); setStatus("", "Paused"); } else { connect(); scheduleRefresh(); }
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted && !isStatic) { connect(); scheduleRefresh(); } });
  if (main.dataset.stream) {
    connect();
    const poll = () => { scheduleRefresh(); setTimeout(poll, Number(main.dataset.every) * 1000 || IDLE_INTERVAL); };
    setTimeout(poll, Number(main.dataset.every) * 1000 || IDLE_INTERVAL);
  }
  for (const list of document.querySelectorAll("[data-tail]")) list.scrollTop = list.scrollHeight;

  // ---- copy buttons and select-all boxes ----

  // The style sheet hides controls that need the script unless this attribute is set.
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
