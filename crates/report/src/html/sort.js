// A click on a heading sorts by that column; a second click turns the order around.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const sort = (head) => {
    const up = head.getAttribute("aria-sort") === "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[head.cellIndex].dataset.key;
    const compare = (one, other) =>
      head.classList.contains("n") ? Number(key(other)) - Number(key(one)) : key(other).localeCompare(key(one));
    const rows = [...table.tBodies[0].rows].sort((one, other) => (up ? -compare(one, other) : compare(one, other)));
    table.tBodies[0].append(...rows);
  };
  for (const head of heads) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(head); }
    });
  }
}
