// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_stand_in/nccl_rules.hpp"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace cuda_stand_in::nccl {

namespace {
std::mutex mutex;
std::optional<std::vector<std::string>> expected;
}  // namespace

ExpectBrokenRules::ExpectBrokenRules() {
    const std::lock_guard lock(mutex);
    expected.emplace();
}
ExpectBrokenRules::~ExpectBrokenRules() {
    const std::lock_guard lock(mutex);
    expected.reset();
}
std::vector<std::string> ExpectBrokenRules::texts() const {
    const std::lock_guard lock(mutex);
    return *expected;
}

void break_rule(const std::string& text) {
    const std::lock_guard lock(mutex);
    if (expected) {
        expected->push_back(text);
        return;
    }
    std::fprintf(stderr, "stand-in NCCL: broken rule: %s\n", text.c_str());
    std::abort();
}

}  // namespace cuda_stand_in::nccl
