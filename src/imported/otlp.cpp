// SPDX-License-Identifier: Apache-2.0
#include "src/imported/otlp.hpp"

#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace vocabpipe::imported {

namespace {

using Json = nlohmann::json;

constexpr const char* kSpanRemedy = "; use OTLP JSON as OpenTelemetry's file exporter writes it";
constexpr int64_t kMostSpanRanks = 65535;

/// Numbers of 64 bits are texts in OTLP's JSON, but not everyone writes them so.
std::optional<int64_t> number_of(const Json& value) {
    if (value.is_number_unsigned() || value.is_number_integer()) return value.get<int64_t>();
    if (!value.is_string()) return std::nullopt;
    return parse_number<int64_t>(value.get_ref<const std::string&>());
}

void read_attributes(const Json& resource, RankRanges& rank) {
    for (const Json& attribute : resource.value("attributes", Json::array())) {
        const std::string key = attribute.at("key").get<std::string>();
        const Json& value = attribute.at("value");
        if (key == "rank" && value.contains("intValue")) {
            const std::optional<int64_t> number = number_of(value.at("intValue"));
            if (!number || *number < 0 || *number >= kMostSpanRanks) {
                throw std::out_of_range("rank " + value.dump());
            }
            rank.rank = static_cast<int>(*number);
        }
        if (key == "host.name") rank.host = value.at("stringValue").get<std::string>();
    }
}

void read_document(const Json& document, std::vector<RankRanges>& ranks, const std::string& name) {
    for (const Json& of_resource : document.at("resourceSpans")) {
        RankRanges rank{.file = name};
        if (const auto resource = of_resource.find("resource"); resource != of_resource.end()) {
            read_attributes(*resource, rank);
        }
        for (const Json& scope : of_resource.at("scopeSpans")) {
            for (const Json& span : scope.at("spans")) {
                const std::optional<int64_t> begin = number_of(span.at("startTimeUnixNano"));
                const std::optional<int64_t> end = number_of(span.at("endTimeUnixNano"));
                if (!begin || !end || *begin < 0 || *end < *begin) {
                    throw std::out_of_range("a span whose times are " +
                                            span.at("startTimeUnixNano").dump() + " and " +
                                            span.at("endTimeUnixNano").dump());
                }
                rank.ranges.push_back({span.at("name").get<std::string>(), *begin, *end});
            }
        }
        const auto same = std::ranges::find(ranks, rank.rank, &RankRanges::rank);
        if (same == ranks.end()) {
            ranks.push_back(std::move(rank));
        } else {
            same->ranges.insert(same->ranges.end(), rank.ranges.begin(), rank.ranges.end());
        }
    }
}

}  // namespace

bool is_otlp(std::string_view head) {
    return head.find("\"resourceSpans\"") != std::string_view::npos;
}

std::vector<RankRanges> read_otlp(std::string_view text, const std::string& name) {
    std::vector<RankRanges> ranks;
    // A document may also be broken over lines.
    const bool one_document = Json::accept(text);
    int line = 0;
    for (size_t at = 0; at < text.size();) {
        const std::string_view part = one_document ? text : next_line(text, at);
        if (one_document) at = text.size();
        ++line;
        if (part.find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
        const std::string place = name + (one_document ? "" : ":" + std::to_string(line));
        try {
            read_document(Json::parse(part), ranks, name);
        } catch (const Json::parse_error&) {
            throw InputFileError(place + ": is no JSON" + kSpanRemedy);
        } catch (const Json::exception&) {
            throw InputFileError(place +
                                 ": a resource or span lacks a member, or has one of "
                                 "another kind" +
                                 kSpanRemedy);
        } catch (const std::out_of_range& error) {
            throw InputFileError(place + ": has " + error.what() + kSpanRemedy);
        }
    }
    if (ranks.empty()) throw InputFileError(name + ": has no spans" + kSpanRemedy);
    return ranks;
}

}  // namespace vocabpipe::imported
