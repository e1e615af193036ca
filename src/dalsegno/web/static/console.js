// Pages are rendered by the server and work without this. It keeps them live, still and quick to use.
"use strict";
(() => {
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const say = document.body.dataset;
const [pill, stream, drawer, help] = ["#pill", "#live", "#drawer", "#help"].map((id) => $(id));
const parse = (text) => new DOMParser().parseFromString(text, "text/html");
const swap = (target, text, how) => htmx.swap({ target, text, swap: how, sourceElement: target });

// --- times: in the reader's zone, UTC on hover ---
function local(root) {
  for (const time of $$("time", root)) {
    const at = new Date(time.dateTime), lang = document.documentElement.lang;
    const today = at.toDateString() === new Date().toDateString();
    const text = today ? at.toLocaleTimeString(lang) : at.toLocaleString(lang);
    if ("ago" in time.dataset) time.title = `${at.toLocaleString(lang)} · ${time.title}`;
    else time.textContent = text;
  }
}

// --- live: a topic changed, so its regions are fetched again and morphed ---
const dirty = new Set(), seen = new Map();
let up = false, frozen = false, through = false, busy = false, timer = 0, fresh = Date.now();

function touch(topic) {
  for (const region of $$("[data-live]")) {
    if (!topic || region.dataset.live.split(" ").includes(topic)) dirty.add(region.id);
  }
  plan();
}
function plan() {
  if (busy || frozen || document.hidden || !dirty.size) return;
  const due = (id) => (seen.get(id) || 0) + +($(`#${id}`)?.dataset.every || 1000);
  const wait = Math.max(30, Math.min(...[...dirty].map(due)) - Date.now());
  clearTimeout(timer);
  timer = setTimeout(() => look([...dirty].filter((id) => due(id) <= Date.now() + 60)), wait);
}
async function look(ids) {
  if (busy || frozen) return;
  busy = true;
  const places = new Map();
  for (const id of ids) {
    dirty.delete(id);
    seen.set(id, Date.now());
    const from = $(`#${id}`)?.dataset.src || location.href;
    places.set(from, [...(places.get(from) || []), id]);
  }
  for (const [from, wanted] of places) {
    const url = new URL(from, location.href);
    url.searchParams.set("fragment", wanted.map((id) => id.replaceAll("-", "_")).join());
    url.hash = "";
    try {
      const answer = await fetch(url, { headers: { "HX-Request": "true" }, signal: AbortSignal.timeout(15000) });
      if (answer.redirected) return location.reload();
      if (!answer.ok) continue;
      put(parse(await answer.text()).body);
      fresh = Date.now();
    } catch { /* the pill says so */ }
  }
  busy = through = false;
  plan();
}
function put(root) {
  for (const next of [...root.children]) {
    const old = next.id && document.getElementById(next.id);
    if (!old) continue;
    local(next);
    if (!through) keep(old, next);
    swap(old, next.outerHTML, "outerMorph");
  }
  after();
}
// While rows are ticked or a menu is open rows stay where they are; arrivals wait behind a button.
function keep(old, next) {
  for (const list of $$("[data-list]", old)) {
    const there = next.querySelector(`#${list.id}`);
    if (!there || !$("[data-tick]:checked, .menu[open]", old)) continue;
    const rows = new Map([...there.children].map((row) => [row.id, row]));
    const stay = [...list.children].map((row) => {
      const now = rows.get(row.id) || row.cloneNode(true);
      if (!rows.delete(row.id)) now.classList.add("gone");
      return now;
    });
    there.replaceChildren(...stay);
    const button = $(".arrivals", next);
    if (button && rows.size) {
      button.hidden = false;
      button.textContent = say.new.replace("{n}", rows.size);
    }
  }
}
function after() {
  $$("[data-count]").forEach((each) => { each.textContent = $$("[data-tick]:checked").length; });
  $$(".chart").forEach(draw);
}

function show() {
  const old = Math.round((Date.now() - fresh) / 1000);
  const [kind, word] = frozen ? ["frozen", say.frozen] : up ? ["up", say.liveWord]
    : old > 15 ? ["stale", say.stale] : ["lost", say.lost];
  pill.className = `pill ${kind}`;
  const [name, age] = [$("b", pill), $("small", pill)];
  if (name.textContent !== word) name.textContent = word;
  age.textContent = old < 2 ? "" : say.ago.replace("{age}", old < 120 ? `${old} s` : `${Math.round(old / 60)} min`);
  if (!up && old % 5 === 4) touch();
}
const on = (names, work) => names.split(" ").forEach((name) => document.addEventListener(name, work));
on("htmx:sse:after:connection", () => { up = true; touch(); show(); });
on("htmx:sse:error htmx:sse:close", () => { up = false; show(); });
on("htmx:sse:before:connection", (event) => { if (event.detail.connection.attempt) up = false; });
on("htmx:sse:before:message", ({ detail: { message: { event } } }) => {
  up = event !== "stale";
  if (up && !dirty.size) fresh = Date.now();
  if (event !== "hello" && event !== "beat" && up) touch(event === "resync" || event === "fresh" ? "" : event);
  show();
});
on("htmx:error htmx:response:error", (event) => {
  if (event.target !== stream) return;
  setTimeout(() => htmx.ajax("GET", stream.getAttribute("hx-sse:connect"), { source: stream }), 3000);
});
on("visibilitychange", () => { if (!document.hidden) touch(); });

// --- forms: sent without leaving the page, which then shows what became of it ---
on("submit", async (event) => {
  const form = event.target.closest("form[data-act]");
  if (!form) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const buttons = $$("button", form);
  buttons.forEach((each) => { each.disabled = true; });
  const action = event.submitter?.getAttribute("formaction") || form.getAttribute("action");
  try {
    const answer = await fetch(action, { method: "POST", body, headers: { "HX-Request": "true" } });
    const to = answer.headers.get("HX-Location");
    if (!to) $("#flash").textContent = (await answer.json()).detail;
    else if (new URL(to, location.href).pathname !== location.pathname) return location.assign(to);
    else {
      const page = parse(await (await fetch(to)).text());
      history.replaceState(null, "", to);
      $$("details.menu[open]").forEach((each) => { each.open = false; });
      $$("[data-tick]:checked").forEach((each) => { each.checked = false; });
      local(page);
      await swap($("#flash"), $("#flash", page).outerHTML, "outerMorph");
      await swap($("#main"), $("#main", page).outerHTML, "outerMorph");
      put($("#frame-state", page).parentNode);
    }
  } catch { up = false; show(); }
  buttons.forEach((each) => { each.disabled = false; });
});

async function open(link) {
  const url = new URL(link.href);
  url.searchParams.set("fragment", "drawer");
  const answer = await fetch(url, { headers: { "HX-Request": "true" } });
  if (!answer.ok) return location.assign(link.href);
  const page = parse(await answer.text());
  local(page);
  await swap(drawer, page.body.innerHTML, "innerHTML");
  if (!drawer.open) drawer.showModal();
}
on("click", (event) => {
  const link = event.target.closest("a[data-drawer]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); open(link); }
  if (event.target.closest("[data-help]")) help.showModal();
  if (event.target.closest(".arrivals")) { through = true; touch(); }
  if (event.target === drawer) drawer.close();
  $$("details.menu[open]").forEach((each) => { if (!each.contains(event.target)) each.open = false; });
});
on("change", ({ target }) => {
  if (target.matches("[data-tick-all]")) $$("[data-tick]").forEach((each) => { each.checked = target.checked; });
  if (target.matches("[data-submit]")) target.form.requestSubmit();
  after();
});

// --- keyboard ---
let going = 0;
const cursor = () => $("[data-cursor]");
function move(step) {
  const rows = $$("[data-list] > *"), here = cursor(), at = rows.indexOf(here) + (here || step > 0 ? step : 0);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at))];
  here?.removeAttribute("data-cursor");
  next?.setAttribute("data-cursor", "");
  next?.scrollIntoView({ block: "nearest" });
}
function press(key) {
  const places = [$("[data-tick]:checked") && $(".bulk"), cursor(), $("#main"), $(".top")];
  const found = places.map((place) => place && $(`[data-key=${key}]`, place)).find(Boolean);
  if (found) { found.focus(); found.click(); }
}
on("keydown", (event) => {
  const { key, target } = event;
  if (key === "Escape") {
    $$("details.menu[open]").forEach((each) => { each.open = false; $("summary", each).focus(); });
    if (target.matches("input, textarea")) target.blur();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("textarea, select, input:not([type=checkbox])")) return;
  if ($("dialog[open]") && key !== "?") return;
  if (going && Date.now() - going < 1500) { going = 0; const to = $(`[data-go="${CSS.escape(key)}"]`); if (to) return to.click(); }
  const acts = {
    "?": () => (help.open ? help.close() : help.showModal()),
    "/": () => $("[data-filter]")?.focus(),
    g: () => { going = Date.now(); },
    j: () => move(1),
    k: () => move(-1),
    x: () => $("[data-tick]", cursor() || document.createElement("i"))?.click(),
    Enter: () => !target.matches("a, button, summary, input") && $("a", cursor() || document.createElement("i"))?.click(),
    " ": () => !target.matches("a, button, summary, input") && (frozen = !frozen, show(), frozen || touch(), true),
    ...Object.fromEntries(["r", "f", "p", "e"].map((each) => [each, () => press(each)])),
  };
  if (acts[key] && acts[key]() !== false) event.preventDefault();
});

// --- charts, on pages that bring uPlot ---
function draw(figure) {
  const text = $("data", figure).value, { x, series, unit } = JSON.parse(text), plot = $(".plot", figure);
  const data = [x, ...series.map((each) => each.values)];
  if (figure.u) { if (figure.was !== text) figure.u.setData(data); figure.was = text; return; }
  if (!window.uPlot || !plot.clientWidth) return;
  const colour = (name) => getComputedStyle(figure).getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const short = (value) => Intl.NumberFormat(document.documentElement.lang, { notation: "compact" }).format(value) + unit;
  figure.was = text;
  figure.u = new uPlot({
    width: plot.clientWidth, height: 150, legend: { live: true }, cursor: { y: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: [axis, { ...axis, size: 54, values: (_, all) => all.map(short) }],
    series: [{}, ...series.map((each) => ({ label: each.label, stroke: colour(each.color), width: 1.6, dash: each.dash, points: { show: false }, value: (_, v) => (v == null ? "" : short(v)) }))],
  }, data, plot);
  new ResizeObserver(() => figure.u.setSize({ width: plot.clientWidth, height: 150 })).observe(plot);
}

local(document);
after();
if ($("#flash p")) $("#flash").scrollIntoView({ block: "nearest" });
setInterval(show, 1000);
})();
