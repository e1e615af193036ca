// The board is rendered by the server; this fetches it again every second and changes only what has changed.
"use strict";

const EVERY = 1000;
const pulse = document.getElementById("pulse");
let timer = 0;
let turn = 0;

const parse = (text) => new DOMParser().parseFromString(text, "text/html");
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const match = next.id ? [...old.children].find((each) => each.id === next.id) : at && alike(at, next) ? at : null;
    if (!match) {
      old.insertBefore(document.importNode(next, true), at);
    } else if (match === at) {
      at = at.nextSibling;
      morph(match, next);
    } else {
      old.insertBefore(match, at);
      morph(match, next);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// Times in the reader's zone; hovering still says UTC.
function local(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    const today = at.toDateString() === new Date().toDateString();
    time.textContent = today ? at.toLocaleTimeString() : at.toLocaleString();
  }
}

function show(page) {
  const fresh = page.getElementById("board");
  if (!fresh) throw new Error("no board in the answer");
  local(fresh);
  morph(document.getElementById("board"), fresh);
  document.title = fresh.dataset.title;
}

function say(text, kind) {
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.className = `pulse ${kind}`;
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  const mine = ++turn;
  try {
    const answer = await fetch(`/board${location.search}`, { signal: AbortSignal.timeout(10000) });
    const text = await answer.text();
    if (mine !== turn) return;
    show(parse(text));
    say("Live", "live");
  } catch {
    if (mine !== turn) return;
    say("Reconnecting", "lost");
  }
  timer = setTimeout(look, EVERY);
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-live]");
  if (!form) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form));
  const button = form.querySelector("button");
  button.disabled = true;
  turn++;
  clearTimeout(timer);
  try {
    const answer = await fetch(form.action, { method: "POST", body });
    const page = parse(await answer.text());
    if (answer.redirected) history.replaceState(null, "", answer.url);
    show(page);
    morph(document.getElementById("flash"), page.getElementById("flash"));
    // What it led to, or why it led nowhere, is at the top.
    if (!answer.ok || form.action.endsWith("/jobs")) scrollTo({ top: 0, behavior: "smooth" });
  } catch {
    say("Reconnecting", "lost");
  }
  button.disabled = false;
  timer = setTimeout(look, EVERY / 2);
});

document.addEventListener("visibilitychange", look);
local(document);
look();
