// Makes the facts of a run, and the bars of its memory.

const code = text => text && element('code', {}, text);
const folded = (summary, text) => element('details', {}, element('summary', {}, summary), element('pre', {}, ...text));
const lines = all => all.flatMap((line, i) => i ? [element('br'), ...line] : line);

const howItEnded = ({ kind, words }) => kind === 'unknown' ? 'There is no log.txt.'
  : kind === 'open' ? 'It is running or was killed: log.txt has no line about its end.'
  : kind === 'ended' ? element('b', { class: 'bad' }, words) : words;

const warningsOf = ({ kind, warnings, shown }) => warnings === 0 ? (kind === 'unknown' ? '' : 'none')
  : folded(counted(warnings, 'warning') + (shown.length < warnings ? `, of which these are the last ${shown.length}` : ''),
    shown.map(line => line + '\n'));

const configurationOf = ({ settings, settingsUnknown }) => {
  if (settingsUnknown) return 'Unknown: ' + settingsUnknown;
  const set = settings.filter(([, , isDefault]) => !isDefault).length;
  return folded(`${counted(settings.length, 'key')}, ${set} not at the default, in bold`, settings.flatMap(
    ([key, value, isDefault]) => [isDefault ? `${key} = ${value}` : element('b', {}, `${key} = ${value}`), '\n']));
};

// Returns the newest text of each prompt, and the older ones in a list that opens.
const textsOf = run => run.texts.flatMap(({ prompt, all, texts }) => {
  const sample = ({ step, text }) => element('p', { class: 'sample' }, element('small', {}, 'step ' + grouped(step)), ' ',
    element('b', {}, prompt), text);
  const older = texts.slice(0, -1), left = older.length < all - 1 ? `, ${older.length} shown` : '';
  return [sample(texts.at(-1)), older.length === 0 ? '' : element('details', {},
    element('summary', {}, `${counted(all - 1, 'text')} before${left}`), ...older.map(sample))];
});

const factsOf = run => {
  const { resumed, parameters } = run.summary;
  const facts = {
    'How it ended': [howItEnded(run.end)],
    'Warnings': [warningsOf(run.end)],
    'Time': [run.began === null ? '' : `${dayAndTime(run.began)} to ${dayAndTime(run.last)}` +
      (resumed ? `, resumed ${counted(resumed, 'time')}` : '')],
    'Continues from': lines(run.origins.map(({ checkpoint, step, decay }) => [code(checkpoint), `, step ${grouped(step)}`,
      decay && ', with another decay: ' + decay])),
    'Model': [joined([parameters && shortNumber(parameters) + ' parameters', run.layout || (run.ranks && counted(run.ranks, 'rank')),
      ...run.machine], ' · ')],
    'Command': [code(run.command)],
    'Program': [run.version],
    'Tokenizer': [run.tokenizerName],
    'Training data': lines(run.data.map(({ name, content, samples }) =>
      [code(name), `: ${content}, ${grouped(samples)} samples an epoch`])),
    'Validation data': run.validation ? [code(run.validationName), joined([run.validationName && ': ', run.validation], '')] : [],
    'Sample text': run.continuation ? [element('p', { class: 'sample' }, element('b', {}, run.prompt), run.continuation)] : [],
    'Samples': textsOf(run),
    'Folder': [code(run.folder)],
    'Configuration': [configurationOf(run)],
  };
  return element('dl', { class: 'facts' }, ...Object.entries(facts).filter(([, said]) => said.some(Boolean)).flatMap(
    ([name, said]) => [element('dt', {}, name), element('dd', {}, ...said)]));
};

// Returns a card of facts for each of several runs.
const cards = () => [element('h2', {}, 'The runs'), ...data.runs.map(run => element('details', { class: 'card' },
  element('summary', {}, element('i', { class: run.line }), run.name, ' ', element('small', {}, endWords[run.end.kind])),
  factsOf(run)))];

const memory = () => {
  const sum = parts => parts.reduce((all, [, bytes]) => all + bytes, 0);
  const most = Math.max(...data.runs.flatMap(run => [sum(run.planned), ...run.measured.map(([, bytes]) => bytes)]));
  if (!(most > 0)) return [];
  const bar = (name, parts, colour) => {
    let left = 0;
    const rects = parts.map(([part, bytes], i) => {
      const rect = element('rect', { class: 'area-' + (colour + i) % 12, x: left, width: number(1000 * bytes / most), height: 10 },
        element('title', {}, `${part}: ${byteCount(bytes)}`));
      left += number(1000 * bytes / most);
      return rect;
    });
    return [element('p', {}, name, element('span', {}, byteCount(sum(parts)))), element('svg',
      { viewBox: '0 0 1000 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': name }, ...rects)];
  };
  const alone = data.runs.length === 1, bars = data.runs.flatMap(run => {
    const of = alone ? '' : run.name + ', ';
    return [...(run.planned.length ? bar(of + 'planned', run.planned, 0) : []),
      ...run.measured.filter(([, bytes]) => bytes > 0).flatMap(part => bar(`${of}measured: ${part[0]}`, [part], 11))];
  });
  const parts = (data.runs.find(run => run.planned.length)?.planned ?? []).map(([part, bytes], i) => element('li', {},
    element('i', { class: 'area-' + i % 12 }), part, element('b', {}, alone ? byteCount(bytes) : '')));
  return [element('h2', {}, 'Memory of the fullest rank'),
    element('div', { class: 'card bars' }, ...bars, element('ul', { class: 'parts' }, ...parts))];
};
