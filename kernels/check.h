// SERVAL_CHECK: our own bug is fatal, with both values. Never for the world's faults (absl::Status
// there).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace serval::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what.c_str());
  std::fflush(stderr);
  std::abort();
}

template <class A, class B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* what, const A& a,
                                const B& b) {
  std::ostringstream out;
  out << what << " (" << a << " vs " << b << ")";
  CheckFailed(file, line, out.str());
}

}  // namespace serval::internal

#define SERVAL_CHECK(condition, ...)                                                             \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::serval::internal::CheckFailed(__FILE__, __LINE__,                                        \
                                      std::string(#condition) + ::std::string(" " __VA_ARGS__)); \
  } while (0)

#define SERVAL_CHECK_OP(a, op, b)                                                                 \
  do {                                                                                            \
    const auto& check_a = (a);                                                                    \
    const auto& check_b = (b);                                                                    \
    if (!(check_a op check_b)) [[unlikely]]                                                       \
      ::serval::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
  } while (0)

#define SERVAL_CHECK_EQ(a, b) SERVAL_CHECK_OP(a, ==, b)
#define SERVAL_CHECK_LE(a, b) SERVAL_CHECK_OP(a, <=, b)
#define SERVAL_CHECK_LT(a, b) SERVAL_CHECK_OP(a, <, b)
#define SERVAL_CHECK_GE(a, b) SERVAL_CHECK_OP(a, >=, b)
#define SERVAL_CHECK_GT(a, b) SERVAL_CHECK_OP(a, >, b)
