// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// Evaluates the best rows again with varied assumptions, in the same order of passes, and fills
/// Plan::sensitivity (each efficiency of the device 10 % lower and higher) and Plan::imbalance
/// (rows of experts). A plan from a profile assumes none of them.
void add_sensitivity(Plan& plan);

}  // namespace vocabpipe
