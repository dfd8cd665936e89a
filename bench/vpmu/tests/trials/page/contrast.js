// What is below WCAG's AA: text 4.5 : 1, lines and areas of plots 3 : 1.
const contrast = ({ document, getComputedStyle }) => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = colour => {
    canvas.fillStyle = '#000';
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = colour => {
    const [r, g, b] = rgb(colour).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = el => {
    for (; el; el = el.parentElement) {
      const colour = getComputedStyle(el).backgroundColor;
      if (colour !== 'transparent' && !colour.endsWith(', 0)')) return colour;
    }
    return 'white';
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const bad = new Set();
  const check = (selector, property, least) => {
    for (const el of document.querySelectorAll(selector)) {
      const found = ratio(getComputedStyle(el)[property], paper(el));
      if (found < least) bad.add(`${selector} ${el.getAttribute('class')}: ${found.toFixed(2)}`);
    }
  };
  for (const tag of ['p', 'li', 'th', 'td', 'dt', 'dd', 'a', 'h1', 'h2', 'h3', 'summary', 'caption', 'strong']) {
    check(tag, 'color', 4.5);
  }
  check('svg text:not(.on)', 'fill', 4.5);
  // Texts on the bars of plots.
  for (const el of document.querySelectorAll('svg text.on')) {
    const found = ratio(getComputedStyle(el).fill, getComputedStyle(el.parentElement.querySelector('rect')).fill);
    if (found < 4.5) bad.add(`${el.getAttribute('class')} on its bar: ${found.toFixed(2)}`);
  }
  check('svg .l', 'stroke', 3);
  check('svg .f', 'fill', 3);
  check('svg .o', 'stroke', 3);
  check('svg .p', 'stroke', 3);
  return [...bad].slice(0, 10);
};
