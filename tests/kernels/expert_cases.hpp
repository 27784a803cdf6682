// SPDX-License-Identifier: Apache-2.0
// How tokens may fall to experts: what the tests of every device run through.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::kernels::test {

struct ExpertRows {
    std::string name;
    std::vector<int32_t> row_begin;
};

inline std::vector<int32_t> running_sums(const std::vector<int32_t>& counts) {
    std::vector<int32_t> sums{0};
    for (const int32_t count : counts) sums.push_back(sums.back() + count);
    return sums;
}

inline std::vector<ExpertRows> expert_rows() {
    std::vector<ExpertRows> cases{
        {"one expert", running_sums({70})},
        {"no rows", running_sums({0, 0, 0})},
        {"all rows to one expert", running_sums({0, 0, 150, 0})},
        {"single rows", running_sums({1, 0, 1, 1, 0, 1})},
        {"few rows", running_sums({2, 31, 0, 33, 5, 1, 64})},
    };
    std::mt19937 engine(3);
    std::uniform_int_distribution<int32_t> rows(0, 40);
    std::vector<int32_t> counts(12);
    for (auto& count : counts) count = rows(engine);
    cases.push_back({"random", running_sums(counts)});
    return cases;
}

}  // namespace vocabpipe::kernels::test
