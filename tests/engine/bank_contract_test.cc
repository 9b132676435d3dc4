#include "tests/support/bank_contract.h"

namespace serval {

INSTANTIATE_TEST_SUITE_P(Kinds, BankContract,
                         testing::Values(BankCase{"paged_f32", "default=paged", DType::kF32},
                                         BankCase{"paged_f16", "default=paged", DType::kF16},
                                         BankCase{"paged_bf16", "default=paged", DType::kBF16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace serval
