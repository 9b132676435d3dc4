#include "kernels/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/check.h"
#include "kernels/mutex.h"

namespace serval {
namespace {

// Longer than the serial gaps inside a step, shorter than anyone minds an idle server burning.
constexpr std::chrono::microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until ready() or for kSpin; returns the last ready().
template <class Ready>
bool Spin(Ready ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// The distinct cores among the CPUs of the affinity mask: two hyperthreads share one set of vector
// units.
int UsableCores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string name = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + name + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : name);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

}  // namespace

// A job is `tasks` claims on `unclaimed`. A worker reads the job only after a claim, and the job
// cannot end before that claimed task is counted in `done`: so nobody waits for a worker that came
// too late, and a late worker touches nothing.
struct ThreadPool::State {
  alignas(64) std::atomic<int64_t> unclaimed{0};
  alignas(64) std::atomic<int64_t> done{0};
  alignas(64) std::atomic<int> parked{0};
  std::atomic<bool> stop{false};

  int64_t tasks = 0;  // these three: written by the caller between jobs
  void* body = nullptr;
  TaskFn fn = nullptr;
  bool running = false;  // caller only

  Mutex mutex;
  CondVar wake;
  std::vector<std::thread> workers;

  void Work(int worker);
  void Park();
  void WakeParked();
  void Loop(int worker);
};

// Runs tasks until none is left.
void ThreadPool::State::Work(int worker) {
  int64_t left = unclaimed.load(std::memory_order_relaxed);
  while (left > 0) {
    if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      continue;
    }
    fn(body, tasks - left, worker);
    // Counted one by one: a worker may run on into the next job without noticing.
    done.fetch_add(1, std::memory_order_release);
    left = unclaimed.load(std::memory_order_relaxed);
  }
}

// The sequentially consistent pairs (parked, unclaimed) here and in WakeParked: one side always
// sees the other.
void ThreadPool::State::Park() {
  MutexLock lock(&mutex);
  parked.fetch_add(1);
  // One wait, not a loop: whoever is woken goes back to spinning, as more jobs are likely on their
  // way.
  if (unclaimed.load() == 0 && !stop.load()) wake.Wait(&mutex);
  parked.fetch_sub(1);
}

void ThreadPool::State::WakeParked() {
  if (parked.load() == 0) return;
  { MutexLock lock(&mutex); }  // whoever is counted in `parked` has reached its wait
  wake.NotifyAll();
}

void ThreadPool::State::Loop(int worker) {
  const auto ready = [this] {
    return unclaimed.load(std::memory_order_relaxed) > 0 || stop.load(std::memory_order_relaxed);
  };
  while (!stop.load()) {
    if (Spin(ready)) {
      Work(worker);
    } else {
      Park();
    }
  }
}

ThreadPool::ThreadPool(int threads)
    : state_(std::make_unique<State>()), threads_(threads > 0 ? threads : UsableCores()) {
  for (int worker = 1; worker < threads_; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker] { state->Loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true);
  state_->WakeParked();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::RunTasks(int64_t tasks, void* body, TaskFn fn) {
  State& state = *state_;
  SERVAL_CHECK(!state.running, "ParallelFor inside ParallelFor");
  state.running = true;
  if (threads_ == 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) fn(body, task, 0);
  } else {
    state.tasks = tasks;
    state.body = body;
    state.fn = fn;
    state.done.store(0, std::memory_order_relaxed);
    state.unclaimed.store(tasks);  // publishes the job
    state.WakeParked();
    state.Work(0);
    const auto ended = [&] { return state.done.load(std::memory_order_acquire) == tasks; };
    while (!Spin(ended)) std::this_thread::yield();  // a worker may have lost its core
  }
  state.running = false;
}

}  // namespace serval
