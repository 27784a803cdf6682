// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/function_of.hpp"

/// The operators as plain loops in double, for tensors of every DType, fp64 included: the oracle of
/// the tests. Results are rounded to their tensor's type. Workspaces are not used and may be empty.
/// Operators that only compose others are not here.
namespace vocabpipe::kernels::reference {

#define VOCABPIPE_OPERATOR(name) FunctionOf<&Operators::name> name;
#define VOCABPIPE_DEVICE_OPERATOR(name)
#include "kernels/operator_list.inc"

/// A record (N) of combine_statistics(), before it is rounded to float.
void token_record(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                  const VocabularyShard& mine, const LossOptions& options, TokenRecord record,
                  std::span<double> values);

}  // namespace vocabpipe::kernels::reference
