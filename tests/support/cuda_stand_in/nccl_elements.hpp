// SPDX-License-Identifier: Apache-2.0
// Sizes, names and reductions of NCCL's data types.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

namespace cuda_stand_in::nccl {

/// Bytes of one element; 0 for a type that does not exist.
[[nodiscard]] size_t size_of(ncclDataType_t type);
[[nodiscard]] std::string name_of(ncclDataType_t type);
[[nodiscard]] std::string name_of(ncclRedOp_t op);
/// False for the types that the stand-in only moves (fp16, fp8).
[[nodiscard]] bool can_reduce(ncclDataType_t type);
/// into[i] = into[i] op from[i], rounded to the type, as at every hop of a ring. ncclAvg adds.
void accumulate(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op);
/// values[i] = values[i] / by, the last step of ncclAvg.
void divide(void* values, size_t count, ncclDataType_t type, int by);

}  // namespace cuda_stand_in::nccl
