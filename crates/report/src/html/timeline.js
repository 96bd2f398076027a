// Draws windows of the run and lets them be zoomed and moved. Everything is in the page.
(() => {
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const root = document.getElementById("timeline");
  const ROW = 22, TOP = 24, NS = "http://www.w3.org/2000/svg";
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

  root.textContent = "";
  const tabs = html("div", { class: "tabs", role: "group", "aria-label": "window" }, root);
  const head = html("div", { class: "head" }, root);
  const detail = html("p", { class: "detail" }, head);
  const tools = html("div", { class: "tools" }, head);
  const frame = html("div", { class: "frame", tabindex: 0, role: "application", "aria-label": "timeline of jobs: arrow keys move, plus and minus zoom, 0 shows all, j and k step through jobs" }, root);
  const picture = make("svg", { class: "timeline" }, frame);
  const told = html("p", { class: "told", role: "status", "aria-live": "polite" }, root);
  const tip = html("div", { class: "tip", hidden: "" }, frame);

  let shown, from, until, chosen, left, width;
  const limit = () => {
    const whole = shown.until - shown.from;
    const length = Math.min(whole, Math.max(until - from, Math.min(whole, 1000)));
    from = Math.min(Math.max(from, shown.from), shown.until - length);
    until = from + length;
  };
  const x = (at) => left + Math.min(Math.max((at - from) / (until - from), -0.01), 1.01) * (width - left);
  const words = (job) => {
    const [, name, state, critical, release, ready, deadline, end, , consumed, why] = job;
    const parts = [name + (critical ? ", critical" : "") + ": " + state, "released at " + instant(release, 1000)];
    if (ready !== null && ready > release) parts.push("queued " + span(ready - release) + " later");
    if (end !== null) parts.push("ended after " + span(end - release));
    if (end !== null && deadline !== null) parts.push(span(Math.abs(end - deadline)) + (end > deadline ? " after" : " before") + " its deadline");
    if (consumed) parts.push("ran " + span(consumed));
    if (why) parts.push("most of it: " + why);
    return parts;
  };

  let pending = false;
  const later = () => { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } };
  const draw = () => {
    width = Math.max(frame.clientWidth, 280);
    left = width < 600 ? 92 : 150;
    const height = TOP + shown.rows.length * ROW + 6;
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", height);
    picture.textContent = "";
    // Round steps, as many as there is room for.
    const aim = (until - from) / Math.max(2, Math.floor((width - left) / 110));
    const power = 10 ** Math.floor(Math.log10(aim));
    const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= aim);
    shown.rows.forEach(([name, processor, lane], index) => {
      const y = TOP + index * ROW;
      const before = shown.rows[index - 1];
      const apart = !before || before[1] !== processor || before[2] !== lane;
      make("line", { class: apart ? "grid lane" : "grid", x1: 0, x2: width, y1: y, y2: y }, picture);
      const most = left < 100 ? 13 : 21;
      const text = make("text", { x: 4, y: y + 15 }, picture, name.length > most ? name.slice(0, most - 1) + "…" : name);
      make("title", {}, text, `${name}, processor ${processor}` + (lane === null ? "" : `, lane ${lane}`));
    });
    // An inner picture with the same places cuts off what lies outside.
    const area = make("svg", { x: left, y: 0, width: width - left, height, viewBox: `${left} 0 ${width - left} ${height}` }, picture);
    for (let at = Math.ceil(from / step) * step; at <= until; at += step) {
      make("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP, y2: height }, area);
      make("text", { class: "at", x: x(at) + 3, y: 15 }, area, instant(at, step));
    }
    for (const [at, name] of shown.regions) {
      make("line", { class: "region", x1: x(at), x2: x(at), y1: 0, y2: height }, area);
      make("text", { class: "region", x: x(at) + 4, y: height - 4 }, area, name);
    }
    const bar = (kind, begin, end, y, high, parent) => {
      if (end < from || begin > until) return;
      const a = x(begin);
      make("rect", { class: kind, x: a.toFixed(1), y, width: Math.max(x(end) - a, 1).toFixed(1), height: high }, parent);
    };
    for (const [first, after, begin, end, strategy] of shown.bands) {
      const y = TOP + first * ROW, before = area.childElementCount;
      bar("second", begin, end, y, (after - first) * ROW, area);
      bar("second edge", begin, end, y, 3, area);
      if (area.childElementCount > before) make("title", {}, area.lastChild, strategy + " in force");
    }
    for (const [row, , begin, end] of shown.others) bar("stranger", begin, end, TOP + row * ROW + 5, 12, area);
    shown.jobs.forEach((job, index) => {
      const [row, , state, critical, release, ready, deadline, end, ran] = job;
      const last = end === null ? shown.until : end;
      const first = Math.min(release, ready === null ? release : ready);
      if (first > until || Math.max(last, state === "missed" ? deadline : last) < from) return;
      const y = TOP + row * ROW;
      const group = make("g", { "data-job": index, class: index === chosen ? "job chosen" : "job" }, area);
      // A wide target for the pointer.
      bar("target", first, last, y + 1, ROW - 2, group);
      const begun = ran.length ? ran[0] : last;
      if (ready !== null && ready < begun) bar("wait", ready, begun, y + 9, 4, group);
      if (ran.length) bar("held", begun, last, y + 9, 4, group);
      const kind = "run" + (state === "missed" ? " missed" : critical ? " critical" : "");
      for (let piece = 0; piece < ran.length; piece += 2) bar(kind, ran[piece], ran[piece + 1], y + 5, 12, group);
      bar("release", release, release, y + 2, 18, group);
      if (deadline !== null && (state === "missed" || index === chosen)) bar("late", deadline, deadline, y + 1, 20, group);
      if ((state === "cancelled" || state === "dropped") && end >= from && end <= until)
        make("text", { class: "cross", x: x(end) - 4, y: y + 16 }, group, "×");
    });
  };

  const choose = (index) => {
    chosen = index;
    const parts = index === null || index === undefined ? [] : words(shown.jobs[index]);
    told.textContent = parts.join("; ");
    later();
  };
  const show = (index) => {
    shown = data[index];
    [from, until] = [shown.from, shown.until];
    [...tabs.children].forEach((tab, place) => tab.setAttribute("aria-pressed", place === index));
    detail.textContent = shown.detail;
    tip.hidden = true;
    choose(shown.chosen);
    draw();
  };
  const zoom = (factor, middle) => {
    [from, until] = [middle - (middle - from) * factor, middle + (until - middle) * factor];
    limit();
    later();
  };
  const move = (by) => { from += by; until += by; limit(); later(); };
  const middle = () => (from + until) / 2;
  const whole = () => { [from, until] = [shown.from, shown.until]; later(); };
  const at = (event) => from + (event.clientX - picture.getBoundingClientRect().left - left) / (width - left) * (until - from);

  data.forEach((window, index) => {
    html("button", { type: "button" }, tabs, window.title).addEventListener("click", () => show(index));
  });
  for (const [name, text, act] of [
    ["zoom in", "+", () => zoom(0.5, middle())],
    ["zoom out", "−", () => zoom(2, middle())],
    ["show all", "all", whole],
  ]) html("button", { type: "button", "aria-label": name, title: name }, tools, text).addEventListener("click", act);

  frame.addEventListener("wheel", (event) => {
    // Alone the wheel scrolls the page, as everywhere.
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(1.002 ** event.deltaY, at(event)); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); move(event.deltaX / (width - left) * (until - from)); }
  }, { passive: false });
  frame.addEventListener("dblclick", (event) => zoom(0.4, at(event)));
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const part = (until - from) / 6, jobs = shown.jobs.length;
    const keys = {
      ArrowLeft: () => move(-part), ArrowRight: () => move(part), "+": () => zoom(0.7, middle()), "=": () => zoom(0.7, middle()),
      "-": () => zoom(1 / 0.7, middle()), 0: whole, Home: () => move(shown.from - from), End: () => move(shown.until - until),
      j: () => jobs && choose(((chosen ?? -1) + 1) % jobs), k: () => jobs && choose(((chosen ?? jobs) - 1 + jobs) % jobs),
      Escape: () => { tip.hidden = true; choose(null); },
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
  frame.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event.clientX); dragged = 0; });
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
      } else move((old - event.clientX) * scale);
      tip.hidden = true;
      return;
    }
    const index = job(event);
    tip.hidden = index === null;
    if (index === null) return;
    tip.textContent = "";
    words(shown.jobs[index]).forEach((part, place) => html(place ? "div" : "b", {}, tip, part));
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
  show(0);
})();
