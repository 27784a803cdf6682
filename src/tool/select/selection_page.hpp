// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/data/sample_texts.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

/// Contents of a selection's page.
struct SelectionPage {
    /// One Shrink or Grow of bounding.
    struct Step {
        bool grow = false;
        int64_t decided = 0;
    };
    /// One round of greedy in partitions.
    struct Round {
        int64_t input = 0, kept = 0, partitions = 0;
        double objective = 0;  ///< in units of utility: 1 is 2^20
    };
    /// A document, or a data set of a blend.
    struct Source {
        std::string name;
        int64_t samples = 0, chosen = 0;
    };

    /// A group of similar samples: texts of some that were chosen, and of some that were not.
    struct Group {
        int64_t samples = 0, chosen = 0;
        std::vector<SampleText> some_chosen, some_left_out;
    };

    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;  ///< name and value
    int64_t samples = 0, chosen = 0;
    std::vector<Step> steps;
    std::vector<Round> rounds;
    std::vector<Source> sources;       ///< empty: unknown
    std::optional<SampleTexts> texts;  ///< none: no data to read them from
    std::string about_groups;          ///< how many there are; empty: unknown
    std::vector<Group> groups;         ///< the largest

    /// One self-contained HTML page without scripts: the samples that each step of bounding
    /// decided, the objective of every round, the kept share of each source, what is kept of groups
    /// of similar samples, and texts of chosen samples next to texts of others.
    [[nodiscard]] std::string html() const;
};

}  // namespace vocabpipe::tool
