// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/place_text.hpp"
#include "vocabpipe/explain.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace vocabpipe {

namespace {

/// Three to six significant digits, in ns, us or ms.
std::string in_seconds(int64_t ns) {
    std::array<char, 48> text;
    const auto value = static_cast<double>(ns);
    if (ns > -10'000 && ns < 10'000) {
        std::snprintf(text.data(), text.size(), "%lld ns", static_cast<long long>(ns));
    } else if (ns > -10'000'000 && ns < 10'000'000) {
        std::snprintf(text.data(), text.size(), "%.1f us", value / 1e3);
    } else {
        std::snprintf(text.data(), text.size(), "%.3f ms", value / 1e6);
    }
    return text.data();
}

std::string padded(std::string text, size_t width) {
    if (text.size() < width) text.insert(0, width - text.size(), ' ');
    return text;
}

}  // namespace

std::string to_text(const Explanation& explanation, const TimeText& time_text, const Mesh& mesh) {
    const TimeText time = time_text ? time_text : in_seconds;
    std::string text = rank_text(mesh, explanation.rank);
    const std::string now = " at " + time(explanation.at_ns);
    switch (explanation.state) {
        case Explanation::State::busy:
            if (!explanation.waits_for.empty()) {
                return text + " is in " + explanation.name + now + ", where it waits " +
                       time(explanation.end_ns - explanation.begin_ns) + " for " +
                       explanation.waits_for + ", from " + time(explanation.begin_ns) + " to " +
                       time(explanation.end_ns) + "\n";
            }
            return text + " runs " + explanation.name + now + ", from " +
                   time(explanation.begin_ns) + " to " + time(explanation.end_ns) + "\n";
        case Explanation::State::finished:
            return text + " has finished all its passes" + now + ", since " +
                   time(explanation.begin_ns) + "; the step ends at " + time(explanation.end_ns) +
                   "\n";
        case Explanation::State::idle:
            break;
    }
    text += " is idle" + now + ": since " + time(explanation.begin_ns) + " it waits to start " +
            explanation.name + ", which begins at " + time(explanation.end_ns) + "\n";
    size_t width = 0;
    for (const ChainLink& link : explanation.chain) {
        width = std::max({width, time(link.begin_ns).size(), time(link.end_ns).size()});
    }
    for (const ChainLink& link : explanation.chain) {
        const bool waits = link.cause == Cause::memory || link.cause == Cause::posting ||
                           link.cause == Cause::overhead;
        text += "  " + padded(time(link.begin_ns), width) + " .. " +
                padded(time(link.end_ns), width) + "  " + rank_text(mesh, link.rank) + "  " +
                (waits ? std::string(to_string(link.cause)) : link.name) + ": " + link.why + "\n";
    }
    return text;
}

std::string to_text(const CriticalPath& path, const TimeText& time_text) {
    const TimeText time = time_text ? time_text : in_seconds;
    std::string text = "critical path: " + time(path.total_ns) + " in " +
                       std::to_string(path.segments.size()) + " segments\n";
    for (const PathShare& share : path.shares) {
        std::array<char, 32> percent;
        std::snprintf(percent.data(), percent.size(), "%7.2f %%  ", 100 * share.share);
        text += percent.data() + padded(time(share.ns), 12) + "  " + share.name + "\n";
    }
    return text;
}

}  // namespace vocabpipe
