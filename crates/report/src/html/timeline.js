// Draws the run: cells over its whole length, single jobs where they were kept. Everything is in the page.
(() => {
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const root = document.getElementById("timeline");
  const ROW = 22, STRIP = 18, TOP = STRIP + 24, NS = "http://www.w3.org/2000/svg";
  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS(NS, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const html = (name, attributes, parent, text) => {
    const element = document.createElement(name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const span = (ns) => {
    const size = Math.abs(ns);
    if (size === 0) return "0";
    const [unit, name] = size >= 999.5e6 ? [1e9, "s"] : size >= 999.5e3 ? [1e6, "ms"] : size >= 999.5 ? [1e3, "us"] : [1, "ns"];
    return Number((ns / unit).toPrecision(3)) + name;
  };
  const instant = (ns, step) => {
    const digits = step >= 1e9 ? 0 : Math.min(9, Math.max(0, Math.ceil(9 - Math.log10(step))));
    return (ns / 1e9).toFixed(digits) + "s";
  };

  // All jobs, window by window; then the worst misses, which need no window.
  const jobs = [];
  for (const window of data.windows) {
    window.first = jobs.length;
    for (const job of window.jobs) jobs.push({ job, window });
  }
  const late = data.late.map((job) => jobs.push({ job, window: null }) - 1);

  root.textContent = "";
  const tabs = html("div", { class: "tabs wide", role: "group", "aria-label": "part of the run" }, root);
  const head = html("div", { class: "head" }, root);
  const detail = html("p", { class: "detail" }, head);
  const tools = html("div", { class: "tools" }, head);
  const frame = html("div", { class: "frame", tabindex: 0, role: "application", "aria-label": "timeline of jobs: arrow keys move, plus and minus zoom, 0 shows the whole run, j and k step through jobs" }, root);
  const picture = make("svg", { class: "timeline" }, frame);
  const told = html("p", { class: "told", role: "status", "aria-live": "polite" }, root);
  const tip = html("div", { class: "tip", hidden: "" }, frame);
  const bottom = TOP + data.rows.length * ROW + 2, height = bottom + (data.regions.length ? 18 : 4);

  let from = 0, until = data.until, chosen = null, left, width;
  const limit = () => {
    const length = Math.min(data.until, Math.max(until - from, Math.min(data.until, 1000)));
    from = Math.min(Math.max(from, 0), data.until - length);
    until = from + length;
  };
  const x = (at) => left + Math.min(Math.max((at - from) / (until - from), -0.01), 1.01) * (width - left);
  const all = (at) => left + Math.min(at / data.until, 1) * (width - left);
  const words = ({ job, window }) => {
    const [, name, state, critical, release, ready, deadline, end, , consumed, why] = job;
    const parts = [name + (critical ? ", critical" : "") + ": " + state, "released at " + instant(release, 1000)];
    if (ready !== null && ready > release) parts.push("queued " + span(ready - release) + " later");
    if (end !== null) parts.push("ended after " + span(end - release));
    if (end !== null && deadline !== null) parts.push(span(Math.abs(end - deadline)) + (end > deadline ? " after" : " before") + " its deadline");
    if (consumed) parts.push("ran " + span(consumed));
    if (why) parts.push((window ? "most of it: " : "") + why);
    return parts;
  };

  let pending = false;
  const later = () => { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } };
  const KINDS = [["made", 5], ["lost", 10], ["missed", 16]];
  // The worst state of a cell: 0 in time, 1 not finished, 2 late, -1 nothing.
  const worst = (cells, place) => cells[3 * place + 2] ? 2 : cells[3 * place + 1] ? 1 : cells[3 * place] ? 0 : -1;
  const cells = (row, bottom, scale, first, after, high, parent) => {
    const paths = ["", "", ""];
    for (let place = first; place < after; place++) {
      const kind = worst(row, place);
      let end = place + 1;
      while (kind >= 0 && end < after && worst(row, end) === kind) end++;
      if (kind >= 0) {
        const a = scale(place * data.width), b = Math.max(scale(end * data.width), a + 1);
        paths[kind] += `M${a.toFixed(1)} ${bottom}V${bottom - KINDS[kind][1] * high}H${b.toFixed(1)}V${bottom}Z`;
        place = end - 1;
      }
    }
    KINDS.forEach(([kind], place) => paths[place] && make("path", { class: "cell " + kind, d: paths[place] }, parent));
  };
  const bar = (kind, begin, end, y, high, parent) => {
    if (end < from || begin > until) return;
    const a = x(begin);
    make("rect", { class: kind, x: a.toFixed(1), y, width: Math.max(x(end) - a, 1).toFixed(1), height: high }, parent);
  };
  // A horizontal line with gaps.
  const dashes = (begin, end, y, parent) => {
    if (end >= from && begin <= until) make("line", { class: "held", x1: x(begin).toFixed(1), x2: x(end).toFixed(1), y1: y, y2: y }, parent);
  };
  // Cuts off what is outside of a part of the run.
  const clip = (begin, end, parent) => {
    const a = x(Math.max(begin, from)), b = Math.max(x(Math.min(end, until)), a + 1);
    const area = make("svg", { x: a, y: 0, width: b - a, height, viewBox: `${a} 0 ${b - a} ${height}` }, parent);
    return area;
  };
  const ticks = (step, area) => {
    for (let at = Math.ceil(from / step) * step; at <= until; at += step) make("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP, y2: bottom }, area);
    data.rows.forEach((row, index) => make("line", { class: "grid", x1: left, x2: width, y1: TOP + index * ROW, y2: TOP + index * ROW }, area));
  };
  const one = (index, area) => {
    const { job, window } = jobs[index];
    const [row, , state, critical, release, ready, deadline, end, ran] = job;
    const last = end === null ? window.until : end;
    const first = Math.min(release, ready === null ? release : ready);
    if (first > until || Math.max(last, state === "missed" ? deadline : last) < from) return;
    const y = TOP + row * ROW, slices = Array.isArray(ran) ? ran : [];
    const group = make("g", { "data-job": index, class: index === chosen ? "job chosen" : "job" }, area);
    // A wide target for the pointer.
    bar("target" + (window ? "" : " alone"), first, last, y + 1, ROW - 2, group);
    const begun = slices.length ? slices[0] : Array.isArray(ran) || ran === null ? last : ran;
    if (ready !== null && ready < begun) bar("wait", ready, begun, y + 14, 4, group);
    if (!slices.length && begun < last) bar("started", begun, last, y + 4, 10, group);
    for (let piece = 1; piece < slices.length; piece += 2)
      if (slices[piece] < (slices[piece + 1] ?? last)) dashes(slices[piece], slices[piece + 1] ?? last, y + 16, group);
    for (let piece = 0; piece < slices.length; piece += 2)
      bar(critical ? "run critical" : "run", slices[piece], slices[piece + 1], critical ? y + 2 : y + 7, critical ? 12 : 7, group);
    if (deadline !== null && last > deadline) bar("late", deadline, last, y + 18, 4, group);
    bar("release", release, release, y + 2, 18, group);
    if (deadline !== null && (state === "missed" || index === chosen) && deadline >= from && deadline <= until) {
      const a = x(deadline);
      make("path", { class: "deadline", d: `M${a} ${y + 21}V${y + 1}l6 3l-6 3` }, group);
    }
    if ((state === "cancelled" || state === "dropped" || state === "stopped") && end >= from && end <= until)
      make("text", { class: "cross", x: x(end) - 4, y: y + 16 }, group, "×");
  };
  const draw = () => {
    width = Math.max(frame.clientWidth, 280);
    left = width < 600 ? 92 : 150;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.textContent = "";
    // Round steps, as many as there is room for.
    const aim = (until - from) / Math.max(3, Math.floor((width - left) / 110));
    const power = 10 ** Math.floor(Math.log10(aim));
    const step = Math.max(1, [1, 2, 5, 10].find((times) => times * power >= aim * 0.999) * power);

    // The strip: the whole run, where single jobs were kept, and the part that is shown below.
    make("text", { class: "at", x: 4, y: 13 }, picture, "whole run");
    cells(data.all, STRIP - 2, all, 0, data.all.length / 3, 0.8, picture);
    for (const window of data.windows) make("path", { class: "kept", d: `M${all((window.from + window.until) / 2).toFixed(1)} ${STRIP + 1}l3.5 3.5l-3.5 3.5l-3.5 -3.5Z` }, picture);
    if (until - from < data.until) {
      const a = all(from), b = Math.max(all(until), a + 3);
      make("path", { class: "veil", d: `M${left} 0H${a.toFixed(1)}V${STRIP}H${left}ZM${b.toFixed(1)} 0H${width}V${STRIP}H${b.toFixed(1)}Z` }, picture);
      make("rect", { class: "view", x: a - 1, y: 0.5, width: b - a + 2, height: STRIP - 1 }, picture);
    }

    data.rows.forEach(([name, processor, kind], index) => {
      const y = TOP + index * ROW, apart = !index || data.rows[index - 1][1] !== processor;
      make("line", { class: apart ? "grid lane" : "grid", x1: 0, x2: width, y1: y, y2: y }, picture);
      const most = left < 100 ? 13 : 21;
      const text = make("text", { class: kind, x: 4, y: y + 15 }, picture, name.length > most ? name.slice(0, most - 1) + "…" : name);
      make("title", {}, text, name + (kind === "critical" ? ", critical" : "") + (processor ? ", processor " + processor : ""));
    });
    const area = clip(from, until, picture);
    for (const [first, after, begin, end] of data.bands) bar("second", begin, end, TOP + first * ROW, (after - first) * ROW, area);
    ticks(step, area);
    for (let at = Math.ceil(from / step) * step; at <= until; at += step) make("text", { class: "at", x: x(at) + 3, y: TOP - 6 }, area, instant(at, step));
    const first = Math.max(0, Math.floor(from / data.width)), after = Math.ceil(until / data.width) + 1;
    data.rows.forEach(([, , , row], index) => {
      if (row) cells(row, TOP + index * ROW + 19, x, first, Math.min(after, row.length / 3), 1, area);
    });
    // Misses outside of windows, if they are wide and the view is narrow.
    const visible = (begin, end) => begin < until && end > from;
    const wide = late.filter((index) => {
      const [, , , , release, , , end] = jobs[index].job;
      const seen = until - from < data.until / 4 && (end - release) / (until - from) * (width - left) > 8;
      return visible(release, end) && (index === chosen || seen);
    });
    for (const index of wide) {
      const [row, , , , release, , , end] = jobs[index].job;
      bar("ground", release, end, TOP + row * ROW + 1, ROW - 2, area);
    }
    wide.sort((one, other) => (one === chosen) - (other === chosen));
    wide.forEach((index) => one(index, area));
    for (const window of data.windows) {
      if (!visible(window.from, window.until) || (window.until - window.from) / (until - from) * (width - left) < 120) continue;
      const inner = clip(window.from, window.until, area);
      bar("ground", window.from, window.until, TOP, bottom - TOP, inner);
      for (const [first, after, begin, end] of window.bands) bar("second", begin, end, TOP + first * ROW, (after - first) * ROW, inner);
      ticks(step, inner);
      for (const [row, , begin, end] of window.others) bar("stranger", begin, end, TOP + row * ROW + 5, 12, inner);
      window.jobs.forEach((job, place) => one(window.first + place, inner));
      inner.append(...inner.querySelectorAll(".cross"));
      bar("edge", window.from, window.from, TOP, bottom - TOP, inner);
      make("rect", { class: "edge", x: x(Math.min(window.until, until)) - 1, y: TOP, width: 1, height: bottom - TOP }, inner);
    }
    let free = left;
    for (const [at, name] of data.regions) {
      if (at < from || at > until) continue;
      make("line", { class: "region", x1: x(at), x2: x(at), y1: TOP, y2: height }, area);
      if (x(at) < free || x(at) + 8 + 6 * name.length > width) continue;
      make("text", { class: "region", x: x(at) + 4, y: height - 4 }, area, name);
      free = x(at) + 8 + 6 * name.length;
    }
  };

  const choose = (index) => {
    chosen = index;
    told.textContent = index === null ? "" : words(jobs[index]).join("; ");
    later();
  };
  const show = (begin, end, text, tab, job) => {
    [from, until] = [begin, end];
    limit();
    [...tabs.children].forEach((other, place) => other.setAttribute("aria-pressed", place === tab));
    detail.textContent = text;
    tip.hidden = true;
    choose(job);
    draw();
  };
  const moved = () => { limit(); [...tabs.children].forEach((tab) => tab.setAttribute("aria-pressed", false)); later(); };
  const zoom = (factor, middle) => {
    [from, until] = [middle - (middle - from) * factor, middle + (until - middle) * factor];
    moved();
  };
  const move = (by) => { from += by; until += by; moved(); };
  const middle = () => (from + until) / 2;
  const whole = () => show(0, data.until, "the whole run, " + span(data.until), 0, null);
  const at = (event) => from + (event.clientX - picture.getBoundingClientRect().left - left) / (width - left) * (until - from);
  const above = (event) => event.clientY - picture.getBoundingClientRect().top;
  // The next job that can be seen, of those of the windows and the misses.
  const step = (by) => {
    const seen = jobs.map((_, index) => index).filter((index) => picture.querySelector(`[data-job="${index}"]`));
    if (seen.length) choose(seen[(seen.indexOf(chosen) + by + seen.length + (by < 0 && chosen === null ? 1 : 0)) % seen.length]);
  };

  html("button", { type: "button" }, tabs, "Whole run").addEventListener("click", whole);
  data.windows.forEach((window, index) => {
    const job = window.chosen === null ? null : window.first + window.chosen;
    html("button", { type: "button" }, tabs, window.title).addEventListener("click", () => show(window.from, window.until, window.detail, index + 1, job));
  });
  for (const [name, text, act] of [
    ["zoom in", "+", () => zoom(0.5, middle())],
    ["zoom out", "−", () => zoom(2, middle())],
    ["whole run", "all", whole],
  ]) html("button", { type: "button", "aria-label": name, title: name }, tools, text).addEventListener("click", act);
  // Jobs of the table of misses, which follows in the page.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-job-name]");
    const whole = ({ job, window }) => !window || (job[7] !== null && window.from <= job[4] && window.until >= job[7]);
    const index = button ? jobs.findIndex((one) => one.job[1] === button.dataset.jobName && whole(one)) : -1;
    if (index < 0) return;
    const [, name, , , release, , , end] = jobs[index].job, half = (end - release) / 2;
    show(release - half, end + half, name + " at " + instant(release, 1e6), -1, index);
    root.scrollIntoView({ block: "start" });
  });

  frame.addEventListener("wheel", (event) => {
    // Alone the wheel scrolls the page, as everywhere.
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(1.002 ** event.deltaY, at(event)); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); move(event.deltaX / (width - left) * (until - from)); }
  }, { passive: false });
  frame.addEventListener("dblclick", (event) => zoom(0.4, at(event)));
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const part = (until - from) / 6;
    const keys = {
      ArrowLeft: () => move(-part), ArrowRight: () => move(part), "+": () => zoom(0.7, middle()), "=": () => zoom(0.7, middle()),
      "-": () => zoom(1 / 0.7, middle()), 0: whole, Home: () => move(-from), End: () => move(data.until - until),
      j: () => step(1), k: () => step(-1), Escape: () => { tip.hidden = true; choose(null); },
    };
    const act = keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  const fingers = new Map();
  let dragged = 0;
  const job = (event) => {
    const group = event.target.closest && event.target.closest("g[data-job]");
    return group ? Number(group.dataset.job) : null;
  };
  // What the cell below the pointer counts.
  const cell = (event) => {
    const row = data.rows[Math.floor((above(event) - TOP) / ROW)], place = Math.floor(at(event) / data.width);
    if (!row || !row[3] || place < 0 || at(event) < from || worst(row[3], place) < 0) return null;
    const [made, lost, missed] = row[3].slice(3 * place, 3 * place + 3);
    const parts = [row[0] + ": " + instant(place * data.width, data.width / 10) + " + " + span(data.width)];
    if (missed) parts.push("▲ " + missed + " late");
    if (lost) parts.push("× " + lost + " not finished");
    parts.push("✓ " + made + " in time");
    return parts;
  };
  frame.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event.clientX);
    dragged = 0;
    if (above(event) < STRIP && event.clientX - picture.getBoundingClientRect().left > left)
      move((event.clientX - picture.getBoundingClientRect().left - left) / (width - left) * data.until - middle());
  });
  frame.addEventListener("pointermove", (event) => {
    const scale = (until - from) / (width - left);
    if (fingers.has(event.pointerId)) {
      const before = [...fingers.values()], old = fingers.get(event.pointerId);
      fingers.set(event.pointerId, event.clientX);
      dragged += Math.abs(event.clientX - old);
      if (dragged > 4 && !frame.hasPointerCapture(event.pointerId)) frame.setPointerCapture(event.pointerId);
      if (fingers.size === 2) {
        const now = [...fingers.values()];
        const [wide, wider] = [Math.abs(before[0] - before[1]), Math.abs(now[0] - now[1])];
        if (wide > 8 && wider > 8) zoom(wide / wider, at({ clientX: (now[0] + now[1]) / 2 }));
      } else if (dragged > 4) move((old - event.clientX) * scale);
      tip.hidden = true;
      return;
    }
    const index = job(event), parts = index === null ? cell(event) : words(jobs[index]);
    tip.hidden = parts === null;
    if (parts === null) return;
    tip.textContent = "";
    parts.forEach((part, place) => html(place ? "div" : "b", {}, tip, part));
    const box = frame.getBoundingClientRect();
    tip.style.left = Math.min(event.clientX - box.left + 14, Math.max(0, box.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = event.clientY - box.top + 16 + "px";
  });
  const lift = (event) => { fingers.delete(event.pointerId); };
  frame.addEventListener("pointerup", (event) => { if (dragged <= 4 && job(event) !== null) choose(job(event)); lift(event); });
  frame.addEventListener("pointercancel", lift);
  frame.addEventListener("pointerleave", (event) => { tip.hidden = true; lift(event); });
  new ResizeObserver(later).observe(frame);
  document.documentElement.classList.add("scripted-page");
  whole();
})();
