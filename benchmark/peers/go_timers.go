// The timer rows in Go: time.AfterFunc, and a map of names under a mutex. Built by `go build`.
//
// The rows, options, names and output are those of common/TimerRows.h.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type completion func(cancelled bool)

// namedTimer is listed in the table until its expiry or a cancel takes it out; that decides.
type namedTimer struct {
	timer  *time.Timer
	done   completion
	next   *namedTimer // of the same name
	listed bool
}

type timers struct {
	mutex sync.Mutex
	table map[string]*namedTimer
}

func (t *timers) start(delay time.Duration, done completion) {
	time.AfterFunc(delay, func() { done(false) })
}

func (t *timers) startNamed(name string, delay time.Duration, done completion) {
	n := &namedTimer{done: done, listed: true}
	t.mutex.Lock()
	n.next = t.table[name]
	t.table[name] = n
	n.timer = time.AfterFunc(delay, func() { t.expired(name, n) })
	t.mutex.Unlock()
}

func (t *timers) expired(name string, n *namedTimer) {
	t.mutex.Lock()
	cancelled := !n.listed
	if n.listed {
		t.unlink(name, n)
	}
	t.mutex.Unlock()
	n.done(cancelled)
}

func (t *timers) unlink(name string, n *namedTimer) {
	n.listed = false
	head := t.table[name]
	if head == n {
		if n.next == nil {
			delete(t.table, name)
		} else {
			t.table[name] = n.next
		}
		return
	}
	for ; head.next != n; head = head.next {
	}
	head.next = n.next
}

func (t *timers) cancel(name string) int {
	t.mutex.Lock()
	n := t.table[name]
	delete(t.table, name)
	for each := n; each != nil; each = each.next {
		each.listed = false
	}
	t.mutex.Unlock()
	count := 0
	for ; n != nil; n = n.next {
		count++
		if n.timer.Stop() {
			go n.done(true)
		} // else its function runs already, and reports
	}
	return count
}

// Cancels one timer of the name, the one that was listed last.
func (t *timers) cancelOne(name string) int {
	t.mutex.Lock()
	n := t.table[name]
	if n != nil {
		t.unlink(name, n)
	}
	t.mutex.Unlock()
	if n == nil {
		return 0
	}
	if n.timer.Stop() {
		go n.done(true)
	} // else its function runs already, and reports
	return 1
}

func nameOf(number uint64) string {
	text := []byte("timer:000000000000")
	for i := len(text) - 1; i >= 6; i-- {
		text[i] = "0123456789abcdef"[number&15]
		number >>= 4
	}
	return string(text)
}

// splitmix64, as in common/Measure.h.
type random uint64

func (r *random) below(bound int64) int64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int64((z ^ (z >> 31)) % uint64(bound))
}

func farDelay(r *random) time.Duration {
	return 600*time.Second + time.Duration(r.below(int64(3600*time.Second)))
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func residentBytes() int64 {
	file, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		fail("no smaps_rollup")
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if fields[0] == "Rss:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib * 1024
		}
	}
	return 0
}

func fail(what string) {
	fmt.Fprintln(os.Stderr, "benchmark:", what)
	os.Exit(1)
}

func perOp(total time.Duration, count int) float64 {
	return float64(total.Nanoseconds()) / float64(count)
}

func median(samples []time.Duration) time.Duration {
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	return samples[len(samples)/2]
}

type rows struct {
	timers      *timers
	outstanding int
	random      random
	total       int64
	cancelled   int64
	expected    int64
}

func (r *rows) count(cancelled bool) {
	if cancelled {
		atomic.AddInt64(&r.cancelled, 1)
	}
	atomic.AddInt64(&r.total, 1)
}

func (r *rows) create(number uint64) {
	r.timers.startNamed(nameOf(number), farDelay(&r.random), r.count)
}

func (r *rows) cancel(number uint64) {
	if r.timers.cancel(nameOf(number)) != 1 {
		fail("a cancel did not find its one timer")
	}
}

func (r *rows) await(count int) {
	r.expected += int64(count)
	for atomic.LoadInt64(&r.total) < r.expected {
		time.Sleep(100 * time.Microsecond)
	}
	if atomic.LoadInt64(&r.cancelled) != r.expected {
		fail("a cancelled timer reported something else")
	}
}

func (r *rows) fill() time.Duration {
	begin := time.Now()
	for i := 0; i < r.outstanding; i++ {
		r.create(uint64(i))
	}
	return time.Since(begin)
}

func (r *rows) createAndCancel() {
	fill := r.fill()
	const batch, rounds = 50000, 5
	var armed, cpuApart, cpuPaired []time.Duration
	for round := 0; round < rounds; round++ {
		first := uint64(1)<<40 + uint64(round*2*batch)
		cpu, begin := cpuTime(), time.Now()
		for i := uint64(0); i < batch; i++ {
			r.create(first + i)
		}
		armed = append(armed, time.Since(begin))
		for i := uint64(0); i < batch; i++ {
			r.cancel(first + i)
		}
		r.await(batch)
		cpuApart = append(cpuApart, cpuTime()-cpu)
		cpu = cpuTime()
		for i := uint64(batch); i < 2*batch; i++ {
			r.create(first + i)
			r.cancel(first + i)
		}
		r.await(batch)
		cpuPaired = append(cpuPaired, cpuTime()-cpu)
	}
	ns := perOp(median(armed), batch)
	fmt.Printf("row=named_create_start peer=go n=%d ns=%.4g caller_ns=%.4g fill_ns=%.4g\n",
		r.outstanding, ns, ns, perOp(fill, r.outstanding))
	fmt.Printf("row=named_create_cancel peer=go n=%d cpu_us=%.4g cpu_at_once_us=%.4g\n", r.outstanding,
		perOp(median(cpuApart), batch)/1e3, perOp(median(cpuPaired), batch)/1e3)
}

// The names exist before, each in a block of its own.
func (r *rows) cancelInRandomOrder() {
	names := make([]string, r.outstanding)
	order := make([]int, r.outstanding)
	for i := range names {
		names[i] = nameOf(uint64(i))
		order[i] = i
		other := r.random.below(int64(i + 1))
		order[i], order[other] = order[other], order[i]
	}
	const rounds = 5
	var cpu, wall []time.Duration
	for round := 0; round < rounds; round++ {
		before, begin := cpuTime(), time.Now()
		for _, name := range names {
			r.timers.startNamed(name, farDelay(&r.random), r.count)
		}
		for _, i := range order {
			if r.timers.cancel(names[i]) != 1 {
				fail("a cancel did not find its one timer")
			}
		}
		r.await(r.outstanding)
		cpu = append(cpu, cpuTime()-before)
		wall = append(wall, time.Since(begin))
	}
	fmt.Printf("row=named_random peer=go n=%d cpu_us=%.4g wall_us=%.4g\n", r.outstanding,
		perOp(median(cpu), r.outstanding)/1e3, perOp(median(wall), r.outstanding)/1e3)
}

func (r *rows) cancelOneByOne() {
	const name, rounds = "one name for them all", 5
	var called, ended, cpu []time.Duration
	for round := 0; round < rounds; round++ {
		for i := 0; i < r.outstanding; i++ {
			r.timers.startNamed(name, farDelay(&r.random), r.count)
		}
		before, begin := cpuTime(), time.Now()
		for i := 0; i < r.outstanding; i++ {
			if r.timers.cancelOne(name) != 1 {
				fail("a cancel of one did not find one timer")
			}
		}
		called = append(called, time.Since(begin))
		r.await(r.outstanding)
		cpu = append(cpu, cpuTime()-before)
		ended = append(ended, time.Since(begin))
	}
	fmt.Printf("row=cancel_each peer=go n=%d call_ns=%.4g wall_ns=%.4g cpu_ns=%.4g\n", r.outstanding,
		perOp(median(called), r.outstanding), perOp(median(ended), r.outstanding),
		perOp(median(cpu), r.outstanding))
}

func (r *rows) replaceShare(share, shares, rounds int) {
	random := random(1000 + share)
	for i := 0; i < rounds; i++ {
		number := uint64(random.below(int64(r.outstanding/shares)))*uint64(shares) + uint64(share)
		r.cancel(number)
		r.timers.startNamed(nameOf(number), farDelay(&random), r.count)
	}
}

func (r *rows) replace(threads, rounds int) {
	r.fill()
	cpu, begin := cpuTime(), time.Now()
	var workers sync.WaitGroup
	for share := 0; share < threads; share++ {
		workers.Add(1)
		go func(share int) {
			r.replaceShare(share, threads, rounds/threads)
			workers.Done()
		}(share)
	}
	workers.Wait()
	done := rounds / threads * threads
	r.await(done)
	fmt.Printf("row=named_replace peer=go n=%d threads=%d per_s=%.4g cpu_us=%.4g\n", r.outstanding,
		threads, float64(done)/time.Since(begin).Seconds(), perOp(cpuTime()-cpu, done)/1e3)
}

// Garbage is collected and returned first: what stays is what the timers hold.
func measureMemory(t *timers, n int, named bool) {
	row := "memory_unnamed"
	if named {
		row = "memory_named"
	}
	r := rows{timers: t, random: 1}
	debug.FreeOSMemory()
	before := residentBytes()
	for i := 0; i < n; i++ {
		if named {
			r.create(uint64(i))
		} else {
			t.start(farDelay(&r.random), r.count)
		}
	}
	debug.FreeOSMemory()
	fmt.Printf("row=%s peer=go n=%d bytes=%.4g\n", row, n, float64(residentBytes()-before)/float64(n))
}

func measureLateness(t *timers, n int, span time.Duration) {
	deadlines := make([]time.Time, n)
	late := make([]float64, n)
	for i := range late {
		late[i] = -1
	}
	var fired int64
	random := random(1)
	cpu := cpuTime()
	for i := 0; i < n; i++ {
		i := i
		delay := time.Duration(random.below(int64(span)))
		deadlines[i] = time.Now().Add(delay)
		t.start(delay, func(bool) {
			late[i] = float64(time.Since(deadlines[i]).Nanoseconds()) / 1e3
			atomic.AddInt64(&fired, 1)
		})
	}
	for atomic.LoadInt64(&fired) < int64(n) {
		time.Sleep(time.Millisecond)
	}
	cpu = cpuTime() - cpu
	sort.Float64s(late)
	fmt.Printf("row=lateness peer=go n=%d p50_us=%.4g p99_us=%.4g max_us=%.4g min_us=%.4g cpu_s=%.4g\n",
		n, late[n/2], late[n*99/100], late[n-1], late[0], cpu.Seconds())
}

func measureDue(t *timers, n int) {
	ended := make(chan struct{})
	left := n
	var step func(bool)
	step = func(bool) {
		left--
		if left == 0 {
			close(ended)
		} else {
			t.start(0, step)
		}
	}
	cpu := cpuTime()
	begin := time.Now()
	t.start(0, step)
	<-ended
	fmt.Printf("row=due_chain peer=go n=%d ns=%.4g cpu_ns=%.4g\n", n, perOp(time.Since(begin), n),
		perOp(cpuTime()-cpu, n))
}

func main() {
	options := map[string]string{"row": "", "n": "100000", "threads": "1", "rounds": "500000"}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		options[key] = value
	}
	number := func(key string) int {
		value, err := strconv.Atoi(options[key])
		if err != nil {
			fail("not a number: " + key)
		}
		return value
	}
	t := &timers{table: map[string]*namedTimer{}}
	r := &rows{timers: t, outstanding: number("n"), random: 1}
	switch options["row"] {
	case "named":
		r.createAndCancel()
	case "named_random":
		r.cancelInRandomOrder()
	case "replace":
		r.replace(number("threads"), number("rounds"))
	case "cancel_each":
		r.cancelOneByOne()
	case "memory_named":
		measureMemory(t, number("n"), true)
	case "memory_unnamed":
		measureMemory(t, number("n"), false)
	case "lateness":
		measureLateness(t, number("n"), 2*time.Second)
	case "due":
		measureDue(t, number("n"))
	default:
		fail("unknown --row")
	}
}
