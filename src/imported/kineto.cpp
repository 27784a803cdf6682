// SPDX-License-Identifier: Apache-2.0
#include "src/imported/kineto.hpp"

#include "vocabpipe/error.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace vocabpipe::imported {

namespace {

using Json = nlohmann::json;

constexpr const char* kRemedy = "; use a file written by torch.profiler's export_chrome_trace()";
constexpr double kMostUs = 9007199254740992.0;  // 2^53: 285 years

/// A text member of an event, or "".
std::string_view text_of(const Json& event, const char* key) {
    const auto found = event.find(key);
    if (found == event.end() || !found->is_string()) return "";
    return found->get_ref<const std::string&>();
}

/// Takes the events as the parser finishes them, so that no tree of the whole file is kept.
class Events {
public:
    /// False if it is an event with a range, but no time.
    bool take(const Json& event) {
        ++count_;
        const std::string_view category = text_of(event, "cat");
        const bool on_gpu = category == "gpu_user_annotation";
        if (text_of(event, "ph") != "X" ||
            !(on_gpu || category == "user_annotation" || category == "cpu_op")) {
            return true;
        }
        const auto ts = event.find("ts"), dur = event.find("dur");
        if (ts == event.end() || dur == event.end() || !ts->is_number() || !dur->is_number()) {
            return false;
        }
        const double begin = ts->get<double>(), length = dur->get<double>();
        if (!(std::abs(begin) <= kMostUs && length >= 0 && length <= kMostUs)) return false;
        NamedRange range{.name = std::string(text_of(event, "name"))};
        // Doubles hold a time of a year in us to within 4 ns.
        range.begin_ns = std::llround(begin * 1000);
        range.end_ns = range.begin_ns + std::llround(length * 1000);
        (on_gpu ? of_gpu_ : of_cpu_).push_back(std::move(range));
        return true;
    }

    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] std::vector<NamedRange> ranges() && {
        return std::move(of_gpu_.empty() ? of_cpu_ : of_gpu_);
    }

private:
    std::vector<NamedRange> of_cpu_, of_gpu_;
    size_t count_ = 0;
};

}  // namespace

bool is_kineto(std::string_view head) {
    return head.find("\"traceEvents\"") != std::string_view::npos &&
           head.find("\"otherData\":{\"title\"") == std::string_view::npos;
}

RankRanges read_kineto(std::string_view text, const std::string& name) {
    Events events;
    const auto fail = [&](const std::string& what) {
        throw InputFileError(name + ": " + what + kRemedy);
    };
    // Depth 1 is the file's object, 2 an event in the list of events.
    const auto keep = [&](int depth, Json::parse_event_t what, Json& value) {
        if (depth != 2 || what != Json::parse_event_t::object_end || !value.contains("ph")) {
            return true;
        }
        if (!events.take(value)) {
            fail("event " + std::to_string(events.count()) +
                 " has no time and duration, or one "
                 "out of range");
        }
        return false;
    };
    RankRanges rank{.file = name};
    try {
        const Json file = Json::parse(text, keep);
        if (!file.is_object() || !file.contains("traceEvents")) fail("has no \"traceEvents\"");
        rank.host = text_of(file, "host_name");
        const auto distributed = file.find("distributedInfo");
        if (distributed != file.end() && distributed->is_object()) {
            const auto number = distributed->find("rank");
            if (number != distributed->end() && number->is_number_integer()) {
                const auto value = number->get<int64_t>();
                if (value < 0 || value > 65534) fail("rank " + number->dump() + " is out of range");
                rank.rank = static_cast<int>(value);
            }
        }
        const auto base = file.find("baseTimeNanoseconds");
        const int64_t origin =
            base != file.end() && base->is_number_integer() ? base->get<int64_t>() : 0;
        rank.ranges = std::move(events).ranges();
        constexpr int64_t kMostOrigin = int64_t{1} << 62;
        if (origin < 0 || origin > kMostOrigin) fail("\"baseTimeNanoseconds\" is out of range");
        if (!add_to_clock(rank.ranges, origin)) fail("a time is out of range");
    } catch (const Json::parse_error& error) {
        const std::string what = error.what();  // "[json...] parse error at line 1, column 2: ..."
        const size_t at = what.find("at line");
        fail(at == std::string::npos ? "is no JSON" : what.substr(at));
    } catch (const Json::exception&) {
        fail("event " + std::to_string(events.count()) + " has a value of another kind");
    }
    return rank;
}

}  // namespace vocabpipe::imported
