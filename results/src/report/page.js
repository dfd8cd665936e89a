'use strict';
// Shows the values of a plot under the pointer, and dims what is not pointed at. The page is whole without it.
(() => {
  const si = (ns, digits) => {
    const [value, unit] = ns < 1e3 ? [ns, 'ns'] : ns < 1e6 ? [ns / 1e3, 'µs'] : ns < 1e9 ? [ns / 1e6, 'ms'] : [ns / 1e9, 's'];
    return Number(value.toPrecision(digits)) + ' ' + unit;
  };
  const tip = document.createElement('div');
  tip.className = 'tip';
  // The value at a place between `from` and `to` of an axis.
  const value = (axis, place, from, to) => {
    const [scale, low, high] = axis.split(' ');
    const share = (place - from) / (to - from);
    return scale === 'log' ? low * (high / low) ** share : +low + (high - low) * share;
  };
  const hide = svg => {
    svg.classList.remove('dim');
    svg.querySelectorAll('.hot').forEach(el => el.classList.remove('hot'));
    tip.remove();
  };
  const show = (svg, series, text, event) => {
    hide(svg);
    svg.classList.add('dim');
    series.classList.add('hot');
    tip.textContent = text;
    svg.parentElement.append(tip);
    const box = svg.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth);
    tip.style.left = Math.max(0, left) + 'px';
    tip.style.top = event.clientY - box.top + 16 + 'px';
  };
  // The series of a line plot with the vertex nearest to a point.
  const nearest = (svg, at) => {
    let best = null;
    for (const series of svg.querySelectorAll('[data-s]')) {
      const path = series.querySelector('path.l');
      for (const [, x, y] of path ? path.getAttribute('d').matchAll(/([\d.]+) ([\d.]+)/g) : []) {
        const far = (x - at.x) ** 2 + (y - at.y) ** 2;
        if (!best || far < best.far) best = { far, series, x: +x, y: +y };
      }
    }
    return best && best.far < 3600 ? best : null;
  };
  for (const svg of document.querySelectorAll('.plot > svg')) {
    // The tooltip takes the place of the browser's own.
    const names = new Map();
    for (const series of svg.querySelectorAll('[data-s]')) {
      const title = series.querySelector(':scope > title');
      names.set(series, title.textContent);
      title.remove();
    }
    const axes = svg.querySelector('.axes');
    const move = event => {
      if (axes) {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const found = nearest(svg, at);
        if (!found) return hide(svg);
        const [left, right, top, bottom] = axes.dataset.area.split(' ').map(Number);
        const y = si(value(axes.dataset.y, found.y, bottom, top), 3);
        const x = value(axes.dataset.x, found.x, left, right);
        const quantile = axes.dataset.kind === 'percentile' ? ', ' + Number((100 - 100 / x).toFixed(4)) + ' %' : '';
        show(svg, found.series, names.get(found.series) + quantile + ': ' + y, event);
      } else {
        const series = event.target.closest('[data-s]');
        series ? show(svg, series, names.get(series), event) : hide(svg);
      }
    };
    svg.addEventListener('pointermove', move);
    svg.addEventListener('pointerdown', move);
    svg.addEventListener('pointerleave', () => hide(svg));
  }
})();
