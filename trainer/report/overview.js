// Makes the figures of one run, or a table of several with the settings in which they differ.

const fixed = (value, digits) => value === null ? '–' : value.toFixed(digits);
const short = value => value === null ? '–' : shortNumber(value);

// Returns the same figures in the same order for every run. better: 1, the highest is best; -1, the lowest.
// ofTokens: it is compared only under one tokenizer.
const figuresOf = ({ summary: s }) => [
  { name: 'Bits per byte', text: fixed(s.bits, 4), more: 'validation', value: s.bits, better: -1 },
  { name: 'Validation loss', text: fixed(s.validation, 4), more: 'lowest', value: s.validation, better: -1, ofTokens: true },
  { name: 'Perplexity', text: s.perplexity >= 1000 ? short(s.perplexity) : fixed(s.perplexity, 2), more: 'validation',
    value: s.perplexity, better: -1, ofTokens: true },
  { name: 'Loss', text: fixed(s.loss, 4), more: 'mean at the end', value: s.loss, better: -1, ofTokens: true },
  { name: 'Steps', text: grouped(s.steps),
    more: joined([s.planned > s.steps && 'of ' + grouped(s.planned), s.skipped && s.skipped + ' skipped'], ', ') },
  { name: 'Tokens', text: short(s.tokens), more: s.parameters && shortNumber(s.tokens / s.parameters) + ' a parameter' },
  { name: 'Samples', text: s.samples ? short(s.samples) : '–', more: s.epoch && shortNumber(s.samples / s.epoch) + ' epochs' },
  { name: 'Training', text: duration(s.hours), more: s.resumed && 'resumed ' + counted(s.resumed, 'time') },
  { name: 'Tokens a second', text: short(s.speed), more: s.mfu === null ? 'median' : `MFU ${(100 * s.mfu).toFixed(1)}\u00a0%`,
    value: s.speed, better: 1 },
];

const tiles = run => element('dl', { class: 'tiles' }, ...figuresOf(run).filter(figure => figure.text !== '–').map(
  ({ name, text, more }) => element('div', {}, element('dt', {}, name),
    element('dd', {}, text, element('small', {}, more || '')))));

const groups = () => new Set(data.runs.map(run => run.group)).size;

const figureColumns = () => {
  const all = data.runs.map(figuresOf);
  return all[0].map(({ name, better, ofTokens }, f) => {
    const scores = all.map(figures => figures[f].value ?? null).map(value => value === null ? -Infinity : better * value);
    const best = groups() > 1 && ofTokens ? Infinity : Math.max(...scores);
    return { name, cells: all.map(figures => figures[f].text), best: scores.map(score => isFinite(score) && score === best) };
  }).filter(column => column.cells.some(text => text !== '–'));
};

const settingColumns = () => {
  const settings = data.runs.map(run => new Map(run.settings)), keys = settings.flatMap(all => [...all.keys()]);
  return [...new Set(keys)].sort().filter(key => key !== 'run.output' && key !== 'checkpoint.directory')
    .map(key => ({ name: key, cells: settings.map(all => all.get(key) ?? '–') }))
    .filter(column => new Set(column.cells).size > 1);
};

// Allows line breaks after dots and bars.
const breaking = text => text.split(/(?<=[._/])/).flatMap((part, i) => i ? [element('wbr'), part] : [part]);

const endWords = { done: 'done', ended: 'ended early', open: 'not ended', unknown: '–' };

const notes = () => {
  const note = text => element('p', { class: 'note' }, text), said = [];
  if (groups() > 1)
    said.push(note(`These runs have ${groups()} tokenizers. Loss and perplexity count tokens, so they are compared only ` +
      'within a tokenizer; bits per byte are compared among all.'));
  const texts = new Set(data.runs.filter(run => run.validation).map(run => run.group + ' ' + run.validation));
  if (texts.size > new Set([...texts].map(text => text.split(' ')[0])).size)
    said.push(note('Runs of one tokenizer have different tokens in data.validation: their validation figures are of ' +
      'different texts.'));
  return said;
};

const table = () => {
  const longest = 30;  // letters that fit a line
  const columns = [...figureColumns(), { name: 'End', cells: data.runs.map(run => endWords[run.end.kind]) },
    { name: 'Warnings', cells: data.runs.map(run => run.end.kind === 'unknown' ? '–' : String(run.end.warnings)) },
    ...(groups() > 1 ? [{ name: 'Tokenizer', cells: data.runs.map(run => run.tokenizer) }] : []), ...settingColumns()];
  const head = element('tr', {}, ...['Run', ...columns.map(column => column.name)].map(name =>
    element('th', {}, ...breaking(name))));
  const rows = data.runs.map((run, r) => element('tr', { 'data-run': r },
    element('th', run.name.length > longest ? { class: 'long' } : {}, element('i', { class: run.line }), ...breaking(run.name)),
    // On a narrow page a row becomes a card, so each cell names its column.
    ...columns.map(({ name, cells, best }) => element('td',
      best?.[r] ? { class: 'best' } : cells[r].length > longest ? { class: 'long' } : {},
      element('span', {}, ...breaking(name)), cells[r]))));
  return [element('div', { class: 'scroll' },
    element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows))), ...notes()];
};

const compared = () => counted(data.runs.length, 'run') + ' compared';
const titleOf = () => {
  const names = data.runs.map(run => run.name);
  return names.length > 4 ? compared() : joined([names.slice(0, -1).join(', '), names.at(-1)], ' and ');
};

// Returns check boxes that hide runs.
const legend = () => data.runs.length === 1 ? [] : [element('ul', { class: 'legend' }, ...data.runs.map((run, r) =>
  element('li', {}, element('label', {}, element('input', { type: 'checkbox', 'data-run': r, checked: '' }),
    element('i', { class: run.line }), run.name))))];
