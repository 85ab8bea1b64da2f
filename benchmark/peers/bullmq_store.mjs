// The rows schedule, cancel, take and lateness of common/StoreRows.h for BullMQ: a timer is a
// delayed job, its name is the id of the job, and a worker does nothing with it. benchmark/run
// installs BullMQ in --modules. Options are those of the other programs.

import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';

const options = Object.fromEntries(
    process.argv.slice(2).map((argument) => argument.match(/^--([^=]+)=(.*)$/s).slice(1)));
const { Queue, Worker } = createRequire(`${options.modules}/`)('bullmq');
const row = options.row;
const n = Number(options.n ?? 10000);
const callers = Number(options.callers ?? 256);
const connection = { path: options.socket, maxRetriesPerRequest: null };
const payload = 'p'.repeat(32);
const kindName = 'expire';
const hourMs = 3600000;
// Those of the row lateness have other names than those that are stored already.
const otherNumbers = 10000000;

const nameOf = (number) => `order/${String(number).padStart(8, '0')}`;
const wallMs = () => performance.timeOrigin + performance.now();

function cpuUs() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function serverUs() {
  const tasks = `/proc/${options.server}/task`;
  const ns = readdirSync(tasks).map(
      (task) => Number(readFileSync(`${tasks}/${task}/schedstat`, 'utf8').split(' ')[0]));
  return ns.reduce((sum, each) => sum + each, 0) / 1000;
}

function print(values) {
  const text = Object.entries(values).map(
      ([key, value]) => `${key}=${Number.isInteger(value) ? value : value.toPrecision(4)}`);
  console.log(`row=${options.prefix}_${row} peer=bullmq ${text.join(' ')}`);
}

// So many callers, each with one request under way.
async function each(count, atATime, ask) {
  let begun = 0;
  const caller = async () => {
    while (begun < count) await ask(begun++);
  };
  await Promise.all(Array.from({ length: atATime }, caller));
}

const queue = new Queue('bull', { connection });
await queue.waitUntilReady();

const add = (number, delay) => queue.add(kindName, { payload },
    { jobId: nameOf(number), delay, removeOnComplete: true, removeOnFail: true });

// Runs all jobs, and ends when so many have been completed.
async function work(count, run) {
  let worker;
  await new Promise((resolve) => {
    let completed = 0;
    worker = new Worker('bull', run, { connection, concurrency: callers });
    worker.on('completed', () => {
      if (++completed === count) resolve();
    });
  });
  return worker;
}

async function measure(action) {
  const serverBefore = serverUs();
  const cpuBefore = cpuUs();
  const begin = performance.now();
  const worker = await action();
  const wallS = (performance.now() - begin) / 1000;
  const values = {
    n, callers, per_s: n / wallS, cpu_us: (cpuUs() - cpuBefore) / n,
    server_us: (serverUs() - serverBefore) / n,
  };
  await worker?.close();
  print(values);
}

async function measureLateness() {
  const rate = Number(options.rate ?? 1000);
  const seconds = Number(options.seconds ?? 10);
  const count = rate * seconds;
  const firstMs = Math.round(Date.now()) + 1000 * (2 + Math.floor(seconds / 2));
  await each(count, callers, (i) => {
    const dueMs = firstMs + Math.floor((i * 1000) / rate);
    return add(otherNumbers + i, Math.max(dueMs - Date.now(), 1));
  });
  const lateUs = [];
  const serverBefore = serverUs();
  const cpuBefore = cpuUs();
  const worker = await work(count, async (job) => {
    lateUs.push(1000 * (wallMs() - (job.timestamp + job.opts.delay)));
  });
  const cpu = (cpuUs() - cpuBefore) / count;
  const server = (serverUs() - serverBefore) / count;
  await worker.close();
  lateUs.sort((a, b) => a - b);
  const at = (part) => lateUs[Math.min(Math.floor(part * count), count - 1)];
  print({ n, cpu_us: cpu, server_us: server, p50_us: at(0.5), p99_us: at(0.99),
          max_us: at(1), min_us: lateUs[0] });
}

if (row === 'schedule') {
  await measure(() => each(n, callers, (i) => add(i, hourMs)));
} else if (row === 'cancel') {
  await each(n, callers, (i) => add(i, hourMs));
  await measure(() => each(n, callers, async (i) => {
    if (await queue.remove(nameOf(i)) !== 1) throw new Error('a job is missing');
  }));
} else if (row === 'take') {
  await each(n, callers, (i) => add(i, 1));
  await measure(() => work(n, async () => {}));
} else if (row === 'lateness') {
  await measureLateness();
} else {
  throw new Error(`no row '${row}'`);
}
await queue.close();
