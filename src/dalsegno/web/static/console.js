// Pages work without this.
const $ = (css, root = document) => root?.querySelector(css);
const $$ = (css, root = document) => [...root.querySelectorAll(css)];
const on = (names, work) => names.split(" ").forEach((name) => document.addEventListener(name, work));
const [pill, drawer, help] = $$("#pill, #drawer, #help");
const said = pill.dataset, now = Date.now;
async function get(place, regions) {
	const url = new URL(place, location);
	url.searchParams.set("fragment", regions);
	const answer = await fetch(url, { signal: AbortSignal.timeout(15e3) });
	if (answer.redirected) location.reload();
	if (!answer.ok) throw answer;
	return answer.text();
}
const swap = (target, text, how) => htmx.swap({ target, text, swap: how, sourceElement: target });
const tick = (checked) => $$("[data-tick]").forEach((each) => (each.checked = checked));
const menus = (shut) => $$(".menu[open]").forEach((menu) => shut(menu) && (menu.open = false));

// the reader's zone
const skew = new Date(said.now) - now();
const past = new Intl.RelativeTimeFormat($("html").lang, { numeric: "auto", style: "narrow" });
function ago(old) {
	const sizes = { day: 86400, hour: 3600, minute: 60 };
	for (const unit in sizes) if (old >= sizes[unit]) return past.format(~~(-old / sizes[unit]), unit);
	return past.format(~~-old, "second");
}
function local(root) {
	const today = new Date().toLocaleDateString("sv") + " ";
	for (const time of $$("time", root)) {
		const at = new Date(time.dateTime);
		const text = time.dataset.ago ? ago((now() + skew - at) / 1e3) : at.toLocaleString("sv").replace(today, "");
		if (time.textContent !== text) time.textContent = text;
	}
}

// A topic changed: fetch its regions.
const dirty = new Set(), asked = {};
let up, frozen, busy, timer, fresh = now();

function touch(topic) {
	for (const { id } of $$(topic === undefined ? "[data-live]" : `[data-live~="${topic}"]`)) dirty.add(id);
	if (busy || frozen || document.hidden || !dirty.size) return;
	const due = (id) => (asked[id] || 0) + +($("#" + id)?.dataset.every || 1000);
	clearTimeout(timer);
	timer = setTimeout(() => look([...dirty].filter((id) => due(id) <= now() + 999)),
		Math.max(30, Math.min(...[...dirty].map(due)) - now()));
}
async function look(ids) {
	busy = true;
	const places = {};
	for (const id of ids) {
		dirty.delete(id);
		asked[id] = now();
		(places[$("#" + id)?.dataset.src || location] ||= []).push(id.replaceAll("-", "_"));
	}
	for (const place in places) {
		try {
			const page = new DOMParser().parseFromString(await get(place, places[place]), "text/html");
			for (const { id, outerHTML } of page.body.children) if ($("#" + id)) swap($("#" + id), outerHTML, "outerMorph");
			fresh = now();
		} catch { ids.forEach(dirty.add, dirty); }
	}
	busy = false;
	touch(null);
}
// Rows stay while somebody is at them.
function still(old, next) {
	for (const list of $$("[data-list]", old)) {
		const there = $("#" + list.id, next), rows = {};
		if (!there || !(list.dataset.list && scrollY > 99 || $("[data-tick]:checked, .menu[open]", old))) continue;
		for (const row of there.children) rows[row.id] = row;
		there.replaceChildren(...[...list.children].map((row) => {
			const same = rows[row.id] || row.cloneNode(true);
			same.classList.toggle("gone", !rows[row.id]);
			delete rows[row.id];
			return same;
		}));
		const count = Object.keys(rows).length, button = $(".arrivals", next);
		if (button && count) Object.assign(button, { hidden: false, textContent: said.new.replace("{n}", count) });
	}
}
on("htmx:before:swap", ({ detail: { tasks } }) => {
	for (const { target, fragment } of tasks) {
		local(fragment);
		if (!("all" in target.dataset)) still(target, fragment);
	}
});
on("htmx:after:swap change", tidy);
function tidy({ target } = {}) {
	if (target?.matches?.("[data-tick-all]")) tick(target.checked);
	for (const each of $$("[data-count]")) each.textContent = $$("[data-tick]:checked").length;
	$$(".chart").forEach(draw);
}

function show() {
	const old = ~~((now() - fresh) / 1e3);
	const kind = frozen ? "frozen" : up ? "on" : old > 15 ? "stale" : "lost";
	const [word, small] = $$("b, small", pill);
	if (!pill.matches("." + kind)) word.textContent = said[kind];
	pill.className = "pill " + kind;
	small.textContent = old < 2 ? "" : ago(old);
	local(document);
	if (up || document.hidden) return;
	htmx.trigger("#live", "wake");
	if (old % 5 === 4) touch();
}
on("htmx:sse:before:connection htmx:sse:after:connection htmx:sse:error htmx:sse:close", ({ type }) => {
	up = /after/.test(type);
	up && touch();
	show();
});
on("htmx:sse:before:message", ({ detail: { message: { event } } }) => {
	up = event !== "stale";
	if (up && !dirty.size) fresh = now();
	touch(/resync|fresh/.test(event) ? undefined : event);
});
on("visibilitychange", () => touch());
on("DOMContentLoaded", show);

on("htmx:after:request", ({ target }) => {
	if (target.id !== "live") menus(() => true), tick(false);
});
on("click", async (event) => {
	const { target } = event, link = target.closest("a[data-drawer]");
	menus((menu) => !menu.contains(target));
	if (target.closest("[data-help]")) help.showModal();
	if (target.matches(".hash")) document.execCommand("copy");
	if (target.closest(".arrivals")) target.closest("[data-live]").dataset.all = "", touch();
	if (!link || event.ctrlKey || event.metaKey) return;
	event.preventDefault();
	try {
		await swap(drawer, await get(link.href, "drawer"), "innerHTML");
		drawer.open || drawer.showModal();
	} catch { location = link.href; }
});

let going = 0;
const cursor = () => $("[data-cursor]");
function move(step) {
	const rows = $$("[data-list] > *"), here = cursor();
	const next = rows[Math.max(0, rows.indexOf(here) + step)];
	if (!next) return;
	delete here?.dataset.cursor;
	next.dataset.cursor = "";
	next.scrollIntoView({ block: "nearest" });
}
// Never another row's key.
function press(key) {
	const own = `[data-key=${key}]`, bulk = $("[data-tick]:checked") && $(".bulk");
	const page = $("[data-list] " + own) ? null : $(`#main ${own}:not(.bulk *)`) || $(".top " + own);
	const found = drawer.open ? $(own, drawer) : $(own, bulk) || $(own, cursor()) || page;
	found?.focus();
	found?.click();
}
on("keydown", (event) => {
	const { key, target } = event;
	if (key === "Escape") {
		menus((menu) => !$("summary", menu).focus());
		if (target.matches("input")) target.blur();
	}
	if (event.ctrlKey || event.metaKey || event.altKey || help.open
		|| target.matches("textarea, select, input:not([type=checkbox])")) return;
	const place = now() - going < 1500 && $(`[data-go="${CSS.escape(key)}"]`);
	const free = !target.matches("a, button, summary, input");
	going = 0;
	const act = place ? () => place.click() : !drawer.open && {
		"?": () => help.showModal(),
		"/": () => $("[data-filter]")?.focus(),
		g: () => (going = now()),
		j: () => move(1),
		k: () => move(-1),
		x: () => $("[data-tick]", cursor())?.click(),
		Enter: free && (() => $("a", cursor())?.click()),
		" ": free && (() => { frozen = !frozen; show(); touch(); }),
	}[key] || ("rfpe".includes(key) && (() => press(key)));
	if (act) event.preventDefault(), act();
});

function draw(figure) {
	const text = $("data", figure).value, { data, lines, unit } = JSON.parse(text), plot = $(".plot", figure);
	const size = () => ({ width: plot.clientWidth, height: 150 });
	if (figure.text === text || !self.uPlot) return;
	figure.text = text;
	if (figure.chart?.series.length === data.length) return figure.chart.setData(data);
	figure.chart?.destroy();
	const colour = (name) => getComputedStyle(figure).getPropertyValue("--" + name);
	const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
	figure.chart = new uPlot({
		...size(), scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
		axes: [{ ...axis, values: "{HH}:{mm}" }, { ...axis, size: 60, values: (_, all) => all.map((each) => each + unit) }],
		series: [{}, ...lines.map(({ color, ...line }) => ({
			...line, stroke: colour(color), value: (_, at) => at == null ? "" : at + unit,
		}))],
	}, data, plot);
	figure.watch ||= new ResizeObserver(() => figure.chart.setSize(size())).observe(plot) || 1;
}

tidy();
setInterval(show, 1000);
