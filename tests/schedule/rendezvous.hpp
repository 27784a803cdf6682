// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Second opinion on programs: walks them in the strictest way there is. Every lane of every rank
/// does one action at a time; a communication blocks its lane until all ranks of its group stand at
/// the same one, with the right roles and sizes that fit. Empty if all actions get done, else who
/// is stuck.
///
/// What may run never takes away another's right to run, so the order of trying does not matter.
[[nodiscard]] std::string rendezvous_fault(const std::vector<Program>& programs);

}  // namespace vocabpipe::testing
