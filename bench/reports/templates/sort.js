"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.sort ?? cell.textContent.trim();
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // what has no value stays last
        const [m, n] = [Number(x), Number(y)];
        const order = Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
// Folded parts belong on paper.
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.print")) part.open = true;
});
