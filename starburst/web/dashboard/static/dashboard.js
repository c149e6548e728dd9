// Keeps the page true: asks for its parts again and puts in those that changed. And the keys.
"use strict";
(() => {
  const body = document.body;
  const EVERY_MS = Number(body.dataset.every || 2000);
  const SLOW_MS = 10000;
  const part = (node) => node.dataset.part;
  let tag = "";
  let asking = null;
  let timer = 0;
  let selected = "";

  // A session's forms need what its login gave to this browser, which no page contains (form_tokens.py).
  const FORMS = "starburst-forms";
  const given = /^#forms=([0-9a-f]+)$/.exec(location.hash);
  if (given) {
    localStorage.setItem(FORMS, given[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
  document.addEventListener("submit", (event) => {
    const field = event.target.querySelector("input[name=form_token]");
    if (field && !field.value) field.value = localStorage.getItem(FORMS) || "";
  }, true);

  // The address of the live parts, with what the reader searches for.
  const address = () => body.dataset.live + location.search;

  const remember = (root) => new Map([...root.querySelectorAll("[data-part]")].map((n) => [part(n), n.outerHTML]));
  let known = remember(document);

  function put(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const node of fresh.querySelectorAll("[data-part]")) {
      const name = part(node);
      if (known.get(name) === node.outerHTML) continue;
      known.set(name, node.outerHTML);
      const old = document.querySelector(`[data-part="${name}"]`);
      if (!old) continue;
      const scrolled = [...old.querySelectorAll(".log, .rows")].map((n) => n.scrollTop);
      const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      old.replaceWith(node);
      [...node.querySelectorAll(".log, .rows")].forEach((n, i) => { n.scrollTop = scrolled[i] || 0; });
      if (focus) node.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    }
    mark();
    slide();
    include();
  }

  // Parts that depend on who looks: buttons. They are asked for when the part they are in is new.
  async function include() {
    for (const slot of document.querySelectorAll("[data-include]:empty")) {
      const answer = await fetch(slot.dataset.include).catch(() => null);
      if (answer?.ok) slot.innerHTML = await answer.text();
    }
  }

  async function ask() {
    clearTimeout(timer);
    if (!body.dataset.live) return;
    asking?.abort();
    const mine = (asking = new AbortController());
    let pause = EVERY_MS;
    try {
      const answer = await fetch(address(), { headers: tag ? { "If-None-Match": tag } : {}, signal: mine.signal });
      if (answer.status === 401 || answer.status === 403) { location.reload(); return; }
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(String(answer.status));
        tag = answer.headers.get("ETag") || "";
        put(await answer.text());
      }
      document.getElementById("offline").hidden = true;
      body.classList.remove("stale");
    } catch (error) {
      if (error.name === "AbortError") return;
      document.getElementById("offline").hidden = false;
      body.classList.add("stale");
      pause = SLOW_MS;
    }
    if (mine === asking) timer = setTimeout(ask, document.hidden ? SLOW_MS : pause);
  }

  // The selected row.
  const rows = () => [...document.querySelectorAll(".row")].filter((n) => n.offsetParent !== null);
  function mark() {
    for (const row of document.querySelectorAll(".row.selected")) row.classList.remove("selected");
    const row = selected && document.querySelector(`.row[data-key="${CSS.escape(selected)}"]`);
    if (row) row.classList.add("selected");
    return row || null;
  }
  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((n) => n.dataset.key === selected);
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    selected = next.dataset.key;
    mark();
    next.querySelector("a.name").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  // What was searched for is on the screen.
  function showHits() {
    const jobs = document.querySelector('[data-part="jobs"]');
    if (!jobs || !location.search) return;
    const top = jobs.getBoundingClientRect().top;
    if (top < 0 || top > innerHeight / 2) jobs.scrollIntoView({ block: "start" });
  }

  // The search.
  const find = document.getElementById("q");
  function search() {
    if (!body.dataset.live || body.dataset.back) return;
    const asked = new URLSearchParams(location.search);
    if (find.value.trim()) asked.set("q", find.value.trim()); else asked.delete("q");
    const text = asked.toString();
    history.replaceState(null, "", text ? `/?${text}` : "/");
    ask().then(showHits);
  }
  let typing = 0;
  find?.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 150); });
  find?.form.addEventListener("submit", (event) => {
    if (body.dataset.back) return;
    event.preventDefault();
    clearTimeout(typing);
    search();
    find.blur();
  });

  const help = document.getElementById("help");
  document.querySelector("[data-help]")?.addEventListener("click", () => help.showModal());

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const inField = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement;
    if (event.key === "Escape") {
      if (inField && event.target !== find) event.target.blur();
      else if (inField && find.value) { find.value = ""; search(); }
      else if (inField) find.blur();
      else if (selected) { selected = ""; mark(); document.activeElement.blur(); }
      else if (body.dataset.back) location.href = body.dataset.back;
      else if (location.search) { find.value = ""; history.replaceState(null, "", "/"); ask(); }
      return;
    }
    if (inField) return;
    const act = { j: () => move(1), k: () => move(-1), "/": () => find?.focus(), "?": () => help.showModal() }[event.key];
    if (act) { event.preventDefault(); act(); return; }
    if (event.key === "Enter" && selected && !(document.activeElement instanceof HTMLAnchorElement)) {
      const row = mark();
      if (row) location.href = row.querySelector("a.name").href;
    }
  });

  // The log of a job, as it is written; the browser comes back by itself and goes on where it was.
  const LINES = 5000;
  const output = document.querySelector("[data-log] .output");
  if (output) {
    const said = document.getElementById("log-state");
    const source = new EventSource(output.parentElement.dataset.log);
    const over = (text) => { source.close(); said.textContent = text; };
    source.addEventListener("log", (event) => {
      const atEnd = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      output.append(JSON.parse(event.data).text);
      if (output.childNodes.length > LINES) output.firstChild.remove();
      if (atEnd) output.scrollTop = output.scrollHeight;
      said.textContent = "live";
    });
    source.addEventListener("note", (event) => { said.textContent = JSON.parse(event.data).text; });
    source.addEventListener("end", (event) => over(JSON.parse(event.data).found ? "ended" : "no output"));
    source.addEventListener("error", (event) => { if (event.data) over(JSON.parse(event.data).error); });
    addEventListener("pagehide", () => source.close());
  }
  document.getElementById("manifest-file")?.addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) document.querySelector("[name=manifest]").value = await file.text();
  });

  // Notifications about one's own jobs: asked for by a click only, and kept in this browser until the next one.
  const NOTICES = "starburst-notices";
  const NOTICES_MS = 10000;
  const bell = document.querySelector("[data-notices]");
  const isOn = () => localStorage.getItem(NOTICES) !== null && Notification.permission === "granted";
  function ring() {
    bell.setAttribute("aria-pressed", String(isOn()));
    bell.textContent = Notification.permission === "denied" ? "Notifications are blocked" : "Notify me";
  }
  async function hear() {
    if (!isOn()) return;
    const seen = localStorage.getItem(NOTICES);
    const answer = await fetch(`/dashboard/notices${seen ? `?after=${seen}` : ""}`).catch(() => null);
    if (!answer?.ok || localStorage.getItem(NOTICES) !== seen) return;
    const { head, news } = await answer.json();
    localStorage.setItem(NOTICES, String(head));
    for (const { job, kind, text } of news) {
      const shown = new Notification(`${job} ${kind}`, { body: text, tag: `${job} ${kind}` });
      shown.onclick = () => { window.focus(); location.href = `/jobs/${encodeURIComponent(job)}`; };
    }
  }
  if (bell && window.Notification && isSecureContext) {
    bell.hidden = false;
    bell.addEventListener("click", async () => {
      if (isOn()) localStorage.removeItem(NOTICES);
      else if (await Notification.requestPermission() === "granted") localStorage.setItem(NOTICES, "");
      ring();
      hear();
    });
    ring();
    hear();
    setInterval(hear, NOTICES_MS);
  }

  // The slider over the points of a table.
  function slide() {
    const slider = document.querySelector("[data-points]");
    if (!slider) return;
    const points = [...slider.closest("section").querySelectorAll("[data-told]")];
    const told = points[Number(slider.value)]?.dataset.told || "";
    points.forEach((row, n) => row.toggleAttribute("data-chosen", n === Number(slider.value)));
    slider.setAttribute("aria-valuetext", told);
    slider.nextElementSibling.textContent = told;
  }
  document.addEventListener("input", (event) => { if (event.target.matches("[data-points]")) slide(); });

  // Choosing a phase or going back need no new page.
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest(".phases:not(.plain) a") : null;
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    history.pushState(null, "", link.getAttribute("href"));
    ask().then(showHits);
  });
  addEventListener("popstate", () => {
    if (find && !body.dataset.back) find.value = new URLSearchParams(location.search).get("q") || "";
    ask();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  showHits();
  slide();
  include();
  timer = setTimeout(ask, EVERY_MS);
})();
