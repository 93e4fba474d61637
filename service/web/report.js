"use strict";
// Links the two texts of the page. Without it the numbers of the passages are links all the same.
(() => {
  const byId = (id) => document.getElementById(id);
  const other = { l: "r", r: "l" };
  const panes = { l: byId("left"), r: byId("right") };
  const marks = { l: [...panes.l.querySelectorAll("mark")], r: [...panes.r.querySelectorAll("mark")] };
  const ribbons = [...document.querySelectorAll("#map path")];
  const rows = [...document.querySelectorAll("#passages li")];
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const passages = rows.map((row, index) => ({
    l: row.dataset.l.split(" ").map(Number),
    r: row.dataset.r.split(" ").map(Number),
    parts: [row, ribbons[index], byId(`l${index + 1}`), byId(`r${index + 1}`)],
    kind: row.querySelector("small").textContent,
  }));
  let current = -1;

  const range = (passage, side) => marks[side].slice(passage[side][0], passage[side][1] + 1);
  const behavior = () => (calm.matches || current < 0 ? "instant" : "smooth");
  const scrolls = (pane) => getComputedStyle(pane).overflowY === "auto";

  // Bring a place of one side into view; at the height `top` of the window if that is given.
  function reveal(side, place, top) {
    const pane = panes[side];
    if (!scrolls(pane)) {
      place.scrollIntoView({ block: "center", behavior: behavior() });
      return;
    }
    const box = pane.getBoundingClientRect();
    const wanted = top ?? box.top + box.height / 4;
    const shift = place.getBoundingClientRect().top - wanted;
    pane.scrollTo({ top: pane.scrollTop + shift, behavior: behavior() });
  }

  // Show a passage. `from` is the side where it was chosen, which stays where it is.
  function show(index, from) {
    for (const part of document.querySelectorAll(".on")) part.classList.remove("on");
    void document.body.offsetWidth; // the animation of what is shown again starts again
    const passage = passages[index];
    const parts = [...passage.parts, ...range(passage, "l"), ...range(passage, "r")];
    for (const part of parts) part.classList.add("on");
    const number = (side) => byId(`${side}${index + 1}`);
    if (from) {
      reveal(other[from], number(other[from]), number(from).getBoundingClientRect().top);
    } else {
      reveal("l", number("l"));
      if (scrolls(panes.r)) reveal("r", number("r"));
    }
    const list = byId("passages");
    list.scrollTop = rows[index].offsetTop - list.clientHeight / 3;
    byId("status").textContent = `${index + 1} of ${passages.length}: ${passage.kind}`;
    current = index;
  }

  function step(by) {
    if (passages.length) show(Math.min(Math.max(current + by, 0), passages.length - 1));
  }

  // The passages that a mark lies in, shortest first; a second click takes the next.
  function chosen(side, mark) {
    const place = marks[side].indexOf(mark);
    const length = (index) => passages[index][side][1] - passages[index][side][0];
    const found = [...passages.keys()]
      .filter((index) => passages[index][side][0] <= place && place <= passages[index][side][1])
      .sort((a, b) => length(a) - length(b) || a - b);
    return found[(found.indexOf(current) + 1) % found.length];
  }

  for (const side of ["l", "r"]) {
    panes[side].addEventListener("click", (event) => {
      const number = event.target.closest(".n");
      const mark = event.target.closest("mark");
      if (number) {
        event.preventDefault();
        show(Number(number.textContent) - 1, side);
      } else if (mark && getSelection().isCollapsed) {
        show(chosen(side, mark), side);
      }
    });
    const view = byId(`${panes[side].id}-view`);
    const follow = () => {
      const { scrollTop, scrollHeight, clientHeight } = panes[side];
      const height = byId("map").viewBox.baseVal.height;
      view.setAttribute("y", (scrollTop / scrollHeight) * height);
      view.setAttribute("height", (clientHeight / scrollHeight) * height);
    };
    panes[side].addEventListener("scroll", follow, { passive: true });
    addEventListener("resize", follow);
    follow();
  }

  byId("passages")?.addEventListener("click", (event) => {
    const row = event.target.closest("li");
    if (!row) return;
    event.preventDefault();
    show(rows.indexOf(row));
  });
  byId("map").addEventListener("click", (event) => {
    const index = ribbons.indexOf(event.target);
    if (index >= 0) show(index);
  });

  // The picture of the sections: names under the pointer, a click goes to both.
  const table = byId("section-table");
  const cells = [...byId("matrix").querySelectorAll("g rect")];
  const columns = table.rows[0].cells.length - 1;
  const pair = (cell) => {
    const index = cells.indexOf(cell);
    return index < 0 ? null : [Math.floor(index / columns) + 1, (index % columns) + 1];
  };
  byId("matrix").addEventListener("pointerover", (event) => {
    const place = pair(event.target);
    if (!place) return;
    const [row, column] = place;
    const name = (cell) => cell.querySelector("a").cloneNode(true).childNodes;
    const score = table.rows[row].cells[column].textContent;
    byId("cell").replaceChildren(
      ...name(table.rows[row].cells[0]), " and ", ...name(table.rows[0].cells[column]), `: ${score}`,
    );
  });
  byId("matrix").addEventListener("click", (event) => {
    const place = pair(event.target);
    if (!place) return;
    for (const part of document.querySelectorAll(".h.on")) part.classList.remove("on");
    ["l", "r"].forEach((side, index) => {
      const head = byId(`${side}s${place[index]}`);
      head.classList.add("on");
      if (side === "l" || scrolls(panes.r)) reveal(side, head);
    });
  });

  const help = byId("help");
  const actions = {
    n: () => step(1),
    ArrowRight: () => step(1),
    p: () => step(-1),
    ArrowLeft: () => step(-1),
    1: () => panes.l.focus(),
    2: () => panes.r.focus(),
    "?": () => help.showModal(),
    // In a frame, the page around it closes the comparison.
    ...(parent !== window && { Escape: () => parent.postMessage("escape", "*") }),
  };
  addEventListener("keydown", (event) => {
    const typed = event.key.length === 1;
    if (event.ctrlKey || event.altKey || event.metaKey || help.open) return;
    if (typed && !byId("keys").checked) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  byId("next").addEventListener("click", () => step(1));
  byId("previous").addEventListener("click", () => step(-1));
  byId("help-button").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());

  document.documentElement.classList.add("js");
  const linked = /^#([lr])(\d+)$/.exec(location.hash);
  if (linked && passages[linked[2] - 1]) {
    // Once the page is complete: the browser itself goes to the one side that the link names.
    addEventListener("load", () => requestAnimationFrame(() => show(linked[2] - 1)));
  } else if (passages.length && scrolls(panes.l)) { // a phone begins with the findings
    show(0);
  }
})();
