// In the page that `test_site.py` writes: for each page of the site and each width, what runs out of it.
"use strict";
const inside = (element, page) => {
  for (let above = element.parentElement; above && above !== page.body; above = above.parentElement) {
    if (["auto", "scroll", "hidden"].includes(page.defaultView.getComputedStyle(above).overflowX)) {
      return true;
    }
  }
  return false;
};
const measured = (frame, width) => {
  const page = frame.contentDocument, found = [];
  if (page.documentElement.scrollWidth > width) {
    found.push(`the page scrolls: ${page.documentElement.scrollWidth}`);
  }
  for (const element of page.querySelectorAll(".md-content *")) {
    const right = Math.round(element.getBoundingClientRect().right);
    if (right > width && !inside(element, page)) {
      found.push(`${element.localName} ends at ${right}: ${element.textContent.trim().slice(0, 40)}`);
    }
  }
  return { found, tables: page.querySelectorAll(".md-content table").length };
};
const loaded = (frame, url, width) => new Promise((done) => {
  frame.style.width = `${width}px`;
  frame.onload = () => done(measured(frame, width));
  frame.src = url;
});
addEventListener("load", async () => {
  const frame = document.querySelector("iframe"), results = [];
  for (const url of PAGES) {
    for (const width of WIDTHS) {
      results.push({ url, width, ...(await loaded(frame, url, width)) });
    }
  }
  document.body.textContent = JSON.stringify(results);
});
