// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cuda_stand_in {

/// Prepares a stack on which the first switch calls entry(argument), which never returns. Returns
/// what to pass to switch_stack().
[[nodiscard]] void* prepare_stack(char* low, size_t bytes, void (*entry)(void*), void* argument);

/// Keeps in *save what continues the caller later, and continues what load stands for.
void switch_stack(void** save, void* load);

}  // namespace cuda_stand_in
