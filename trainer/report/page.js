// Reads values off the plots under the pointer; all else works without.
(() => {
  const text = v => {
    if (v === 0) return '0';
    const a = Math.abs(v);
    for (const [unit, letter] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e4, 'k']])
      if (a >= unit) return +(v / (unit === 1e4 ? 1e3 : unit)).toPrecision(4) + letter;
    return String(+v.toPrecision(4));
  };
  const points = new Map();
  const pointsOf = line => {
    if (!points.has(line)) points.set(line, line.getAttribute('points').split(' ').map(p => p.split(',').map(Number)));
    return points.get(line);
  };
  const nearest = (all, x) => {
    let low = 0, high = all.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (all[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(all[low][0] - x) < Math.abs(all[high][0] - x) ? all[low] : all[high];
  };
  const clear = () => document.querySelectorAll('.cursor, .tip').forEach(e => e.remove());
  document.querySelectorAll('.by .area').forEach(area => {
    const by = area.parentElement, plot = by.closest('.plot');
    const low = +plot.dataset.low, high = +plot.dataset.high;
    const value = y => plot.dataset.log === '1' ? low * Math.pow(high / low, 1 - y / 1000) : low + (high - low) * (1 - y / 1000);
    area.addEventListener('pointermove', event => {
      clear();
      const box = area.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      document.querySelectorAll('.by .area').forEach(other => {
        if (!other.offsetParent) return;
        const cursor = document.createElement('div');
        cursor.className = 'cursor';
        cursor.style.left = 100 * share + '%';
        other.append(cursor);
      });
      const tip = document.createElement('div');
      tip.className = 'tip';
      const head = document.createElement('span');
      head.textContent = text(share * by.dataset.end) + ' ' + by.dataset.unit;
      tip.append(head);
      area.querySelectorAll('.line').forEach(line => {
        if (1000 * share > pointsOf(line).at(-1)[0] + 5) return;  // the run had ended
        const row = document.createElement('div'), swatch = document.createElement('i');
        swatch.className = [...line.classList].find(c => c.startsWith('line-'));
        row.append(swatch, text(value(nearest(pointsOf(line), 1000 * share)[1])) + (line.dataset.name ? '  ' + line.dataset.name : ''));
        tip.append(row);
      });
      tip.style[share < 0.5 ? 'left' : 'right'] = 'calc(' + 100 * (share < 0.5 ? share : 1 - share) + '% + .6rem)';
      area.append(tip);
    });
    area.addEventListener('pointerleave', clear);
  });
})();
