// SPDX-License-Identifier: Apache-2.0
#include "src/plan/nearest.hpp"

#include <algorithm>
#include <cctype>

namespace vocabpipe {

namespace {

char small(char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

size_t edits(std::string_view from, std::string_view to) {
    std::vector<size_t> row(to.size() + 1);
    for (size_t j = 0; j <= to.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= from.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= to.size(); ++j) {
            const size_t replace = diagonal + (small(from[i - 1]) == small(to[j - 1]) ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
        }
    }
    return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string_view>& known) {
    std::string_view best;
    size_t fewest = name.size() / 2 + 1;
    for (const std::string_view candidate : known) {
        if (const size_t count = edits(name, candidate); count < fewest) {
            fewest = count;
            best = candidate;
        }
    }
    return std::string(best);
}

}  // namespace vocabpipe
