// What keyboards and screen readers need: names, headings in order, targets of links, tables with headings.
const structure = ({ document }) => {
  const bad = [];
  const all = selector => [...document.querySelectorAll(selector)];
  const require = (good, what) => { if (!good) bad.push(what); };
  const ids = all('[id]').map(el => el.id);
  require(new Set(ids).size === ids.length, 'an id is there twice');
  for (const a of all('a')) {
    require(document.getElementById(a.getAttribute('href').slice(1)), 'no target of ' + a.outerHTML);
  }
  let level = 0;
  for (const heading of all('h1, h2, h3')) {
    const found = Number(heading.tagName[1]);
    require(found <= level + 1, 'a level is skipped before ' + heading.textContent);
    level = found;
  }
  for (const svg of all('svg')) {
    require(svg.getAttribute('aria-label') || svg.hasAttribute('aria-hidden'), 'a plot without a name');
  }
  for (const el of all('.scroll')) {
    require(el.tabIndex === 0 && el.getAttribute('aria-label'), 'a scroll container without focus or name');
  }
  for (const figure of all('figure')) {
    require(figure.querySelector('figcaption') && figure.closest('.figures').querySelector('table'), 'a figure without caption or table');
  }
  for (const table of all('table')) {
    require(table.querySelector('th[scope=col]'), 'a table without headings');
  }
  for (const tag of ['header', 'nav', 'main', 'footer']) {
    require(all(tag).length === 1, 'not one ' + tag);
  }
  require(document.documentElement.lang === 'en' && document.title, 'no language or title');
  return bad.slice(0, 10);
};
