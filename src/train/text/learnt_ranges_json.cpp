// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/learnt_ranges_json.hpp"

#include <stdexcept>
#include <string>

namespace vocabpipe {

std::vector<LearntRange> learnt_ranges_from(const nlohmann::json& ranges, size_t text_bytes) {
    const auto fail = [](const std::string& why) { throw std::invalid_argument(why); };
    if (!ranges.is_array())
        fail("is no list of [begin, end] but " + std::string(ranges.type_name()));
    std::vector<LearntRange> learnt;
    size_t behind = 0;
    for (const nlohmann::json& pair : ranges) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
            !pair[1].is_number_unsigned()) {
            fail("has " + pair.dump(-1, ' ', true).substr(0, 60) +
                 ", which is no [begin, end] of two bytes of the text");
        }
        const LearntRange range{pair[0].get<size_t>(), pair[1].get<size_t>()};
        if (range.begin < behind || range.end < range.begin || range.end > text_bytes) {
            fail("has " + pair.dump() +
                 ", but must be in order, without overlaps, and within the " +
                 std::to_string(text_bytes) + " bytes of the text");
        }
        behind = range.end;
        if (range.begin < range.end) learnt.push_back(range);
    }
    return learnt;
}

}  // namespace vocabpipe
