#include "clients/common/interrupt.h"

#include <semaphore.h>

#include <cerrno>
#include <utility>

namespace serval {
namespace {

// A semaphore is the one thing of the threads that a signal handler may touch.
sem_t wake;

void OnSignal(int) {
  const int saved = errno;
  sem_post(&wake);
  errno = saved;
}

}  // namespace

Interrupt::Interrupt(std::function<void()> on_interrupt) {
  sem_init(&wake, 0, 0);
  watcher_ = std::thread([this, call = std::move(on_interrupt)] {
    while (sem_wait(&wake) != 0) {
    }
    if (stop_) return;
    raised_ = true;
    call();
  });
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  stop_ = true;
  sem_post(&wake);
  watcher_.join();
  sem_destroy(&wake);
}

void IgnoreSigPipe() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace serval
