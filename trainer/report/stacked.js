// Draws the breakdown of the time of a run's steps, stacked.
const drawStacked = (time, data) => {
  const run = data.runs[time.run], alone = data.runs.length === 1;
  const x = { ...scaleOf(0, time.edges.at(-1), false), label: 'steps' }, y = scaleOf(0, 1.04 * time.top, false);
  const below = time.layers[0].seconds.map(() => 0);
  const areas = time.layers.map(layer => {
    let up = '', back = '';
    layer.seconds.forEach((seconds, b) => {
      const left = number(1000 * x.share(time.edges[b])), right = number(1000 * x.share(time.edges[b + 1]));
      const height = value => number(1000 * (1 - Math.min(1, y.share(value))));
      up += (b ? 'L' : 'M') + left + ' ' + height(below[b] + seconds) + 'H' + right;
      back = 'L' + right + ' ' + height(below[b]) + 'H' + left + back;
      below[b] += seconds;
    });
    return element('path', { class: 'area-' + layer.colour, d: up + back + 'Z' }, element('title', {}, layer.name));
  });
  const notes = time.highest > time.top
    ? [element('p', { class: 'note' }, 'Cut off above; the highest reaches ' + shortNumber(time.highest) + ' s.')] : [];
  const parts = time.layers.map(layer => element('li', {}, element('i', { class: 'area-' + layer.colour }),
    layer.name, element('b', {}, (100 * layer.share).toFixed(1) + ' %')));
  notes.push(element('ul', { class: 'parts' }, ...parts));
  const title = alone ? 'Time of a step' : run.name;
  const head = [element('b', {}, title), element('span', {}, 'seconds a step')];
  return frame({ title }, head, x, y, grid => [...areas, grid], notes).figure;
};
