// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace vocabpipe::testing {

struct WrittenChoices {
    uint16_t label = 0;
    std::vector<uint16_t> context;
    std::vector<std::vector<uint16_t>> completions;
};

/// The bytes of an evaluation set in llm.c's format, from its description.
inline std::string choice_file(const std::vector<WrittenChoices>& examples) {
    std::vector<uint16_t> stream;
    size_t longest = 0;
    for (size_t i = 0; i < examples.size(); ++i) {
        const WrittenChoices& e = examples[i];
        std::vector<uint16_t> one{65535, 0, static_cast<uint16_t>(i), e.label,
                                  static_cast<uint16_t>(e.completions.size())};
        const auto put = [&one](const std::vector<uint16_t>& tokens) {
            one.push_back(static_cast<uint16_t>(tokens.size()));
            one.insert(one.end(), tokens.begin(), tokens.end());
        };
        put(e.context);
        for (const auto& completion : e.completions) put(completion);
        one[1] = static_cast<uint16_t>(2 * one.size());
        longest = std::max(longest, 2 * one.size());
        stream.insert(stream.end(), one.begin(), one.end());
    }
    const int32_t header[] = {20240522, 1, static_cast<int32_t>(examples.size()),
                              static_cast<int32_t>(longest)};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
    bytes.resize(1024, '\0');
    return bytes.append(reinterpret_cast<const char*>(stream.data()), 2 * stream.size());
}

}  // namespace vocabpipe::testing
