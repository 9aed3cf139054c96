/* What is live: server-sent events while the page is seen, polling where they do not come through.
   Everything works without this file; then pages are as they were when they were opened. */
(() => {
  "use strict";
  const POLL_MS = 5000;
  const AGES_MS = 15000;
  const TRY_AGAIN_MS = 60000;
  const PATIENCE = 2;

  const pulse = document.getElementById("pulse");
  const pulseText = pulse.querySelector(".pulse-text");
  const live = () => document.getElementById("live");
  const mode = () => (live() ? live().dataset.live : "off");
  let source = null;
  let known = null;
  let misses = 0;
  let pollTimer = 0;
  let owed = false;

  function show(state, text) {
    if (pulse.dataset.state === state && pulseText.textContent === text) return;
    pulse.dataset.state = state;
    pulseText.textContent = text;
  }

  /* Nobody likes what they are reading, marking or typing into to be replaced. */
  function isBusy() {
    const region = live();
    const selection = document.getSelection();
    const marks = selection && !selection.isCollapsed && region.contains(selection.anchorNode);
    const active = document.activeElement;
    const types = region.contains(active) && active.matches("input, select, textarea");
    return marks || types;
  }

  function refresh() {
    if (document.hidden || mode() !== "auto") return;
    if (isBusy()) { owed = true; return; }
    owed = false;
    window.htmx.trigger(live(), "refresh");
  }

  function news() {
    if (mode() === "notice") document.getElementById("news").hidden = false;
    refresh();
  }

  function poll(on) {
    window.clearInterval(pollTimer);
    pollTimer = on ? window.setInterval(refresh, POLL_MS) : 0;
  }

  function listen() {
    if (document.hidden || mode() === "off" || source || !window.EventSource) return;
    source = new EventSource(document.body.dataset.events);
    source.addEventListener("digest", (event) => {
      misses = 0;
      poll(false);
      show("live", "Live");
      if (known !== null && known !== event.data) news();
      known = event.data;
    });
    source.addEventListener("error", () => {
      misses += 1;
      if (source && (source.readyState === EventSource.CLOSED || misses >= PATIENCE)) {
        unlisten();
        poll(true);
        show("polling", `Polling every ${POLL_MS / 1000} s`);
        window.setTimeout(listen, TRY_AGAIN_MS);
      }
    });
  }

  function unlisten() {
    if (source) source.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      unlisten();
      poll(false);
      show("still", "Paused");
    } else {
      misses = 0;
      refresh();
      listen();
    }
  });
  document.addEventListener("selectionchange", () => { if (owed && !isBusy()) refresh(); });
  document.addEventListener("focusout", () => window.setTimeout(() => { if (owed) refresh(); }, 0));
  window.addEventListener("pagehide", unlisten);
  window.addEventListener("pageshow", (event) => { if (event.persisted) { refresh(); listen(); } });
  window.setInterval(refresh, AGES_MS);

  /* A page that waits for something asks more often; what it shows then may end that. */
  let waitTimer = 0;
  function waitIfAsked() {
    window.clearTimeout(waitTimer);
    const every = live() && live().dataset.poll;
    if (every) waitTimer = window.setTimeout(() => { refresh(); waitIfAsked(); }, Number(every));
  }

  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const status = event.detail.xhr.status;
    if (status === 401 || status === 403 || status === 429 || !/id="live"/.test(event.detail.xhr.responseText)) {
      event.detail.shouldSwap = false;
      show("lost", "Not signed in; reload");
    }
  });
  document.body.addEventListener("htmx:afterSettle", () => { waitIfAsked(); prepare(); });
  document.body.addEventListener("htmx:sendError", () => show("lost", "No answer from the console"));
  document.body.addEventListener("htmx:afterOnLoad", () => {
    if (pulse.dataset.state === "lost") show("polling", "Back again");
  });

  /* Lists: choose rows, walk along them with the arrow keys. */
  function prepare() {
    const list = document.querySelector("[data-list]");
    const all = list && list.querySelector("[data-check-all]");
    if (!all) return;
    const boxes = [...list.querySelectorAll("input[name=id]")];
    const bar = list.querySelector("[data-selection]");
    const words = list.querySelector("[data-selected]");
    const tell = () => {
      const chosen = boxes.filter((box) => box.checked).length;
      all.checked = chosen > 0 && chosen === boxes.length;
      all.indeterminate = chosen > 0 && chosen < boxes.length;
      bar.hidden = chosen === 0;
      words.textContent = `${chosen} selected`;
    };
    all.hidden = false;
    all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; tell(); });
    list.addEventListener("change", tell);
    tell();
  }

  document.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? null : rows[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { event.preventDefault(); next.focus(); }
  });

  prepare();
  waitIfAsked();
  listen();
})();
