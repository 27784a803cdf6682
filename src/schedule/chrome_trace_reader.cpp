// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/run_recorder.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kAdvice = "use a file written by train_gpt --trace-dir or vocabpipe";
const std::string kRemedy = "; " + std::string(kAdvice);
constexpr uint64_t kMostFileBytes = uint64_t{8} << 30;  // of 40 million slices

std::optional<Lane> lane_of(const std::string& name) {
    if (name == "combine") return Lane::local;  // in files of earlier versions
    for (int lane = 0; lane < kLanes; ++lane) {
        if (to_string(static_cast<Lane>(lane)) == name) return static_cast<Lane>(lane);
    }
    return std::nullopt;
}

Mesh mesh_of(const Json& json, int ranks) {
    // Files of earlier versions have no context ranks.
    const Mesh mesh{.pipeline = json.at("pipeline").get<int>(),
                    .data = json.at("data").get<int>(),
                    .tensor = json.at("tensor").get<int>(),
                    .context = json.value("context", 1)};
    int rest = ranks;
    const auto divides = [&rest](int part) {
        if (part < 1 || rest % part != 0) return false;
        rest /= part;
        return true;
    };
    if (!divides(mesh.pipeline) || !divides(mesh.data) || !divides(mesh.context) ||
        mesh.tensor != rest) {
        throw std::out_of_range("the mesh " + json.dump() + " for " + std::to_string(ranks) +
                                " ranks");
    }
    return mesh;
}

int64_t ns(const Json& microseconds) {
    const double value = microseconds.get<double>() * 1000;
    // 2^53 ns, up to which doubles are exact: 104 days.
    if (!(value >= 0 && value <= 9007199254740992.0)) {
        throw std::out_of_range("a time of " + microseconds.dump() + " us");
    }
    return std::llround(value);
}

/// Takes the events as the parser finishes them, so that no tree of the whole file is kept.
class Reader {
public:
    void event(const Json& event) {
        const std::string& kind = event.at("ph").get_ref<const std::string&>();
        if (kind == "X" && event.at("cat") != "wait") slice(event);
        if (kind == "M") static_cast<void>(rank(event));  // also names ranks without slices
        if (kind == "C" && event.at("name") == "bytes alive") counter(event);
        ++events_;
    }

    /// Number of events read so far, for messages.
    [[nodiscard]] size_t events() const { return events_; }

    RecordedRun take(const std::string& title) && {
        RunRecorder recorder(title);
        for (const Found& found : slices_) {
            if (found.action > slices_.size()) {
                throw std::out_of_range("action " + std::to_string(found.action) + " of " +
                                        std::to_string(slices_.size()));
            }
            recorder.add(found.slice, found.name, found.action, found.waited_for);
        }
        RecordedRun run = std::move(recorder).take(ranks_);
        run.purposes = {"bytes alive"};
        run.barrier = std::find(run.names.begin(), run.names.end(), "Update") != run.names.end();
        memory_.resize(static_cast<size_t>(ranks_));
        for (auto& values : memory_) {
            std::stable_sort(values.begin(), values.end(),
                             [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; });
            int64_t before = 0;
            for (RecordedRun::MemoryChange& change : values) {
                change.bytes -= std::exchange(before, change.bytes);
            }
        }
        run.memory = std::move(memory_);
        return run;
    }

private:
    struct Found {
        RecordedRun::Slice slice;
        std::string name;
        uint32_t action = 0;
        uint32_t waited_for = RecordedRun::kNone;
    };

    static uint32_t index(const Json& value) {
        const auto number = value.get<int64_t>();
        if (number < 0 || number >= RecordedRun::kNone) {
            throw std::out_of_range("an index of " + value.dump());
        }
        return static_cast<uint32_t>(number);
    }

    uint16_t rank(const Json& event) {
        const uint32_t rank = index(event.at("pid"));
        if (rank >= std::numeric_limits<uint16_t>::max()) {
            throw std::out_of_range("rank " + std::to_string(rank));
        }
        ranks_ = std::max(ranks_, static_cast<int>(rank) + 1);
        return static_cast<uint16_t>(rank);
    }

    void slice(const Json& event) {
        Found found;
        found.slice.rank = rank(event);
        found.name = event.at("name");
        const auto lane = lane_of(event.at("cat"));
        if (!lane) throw std::out_of_range("category " + event.at("cat").dump());
        found.slice.lane = *lane;
        found.slice.begin_ns = ns(event.at("ts"));
        found.slice.end_ns = found.slice.begin_ns + ns(event.at("dur"));
        const Json& args = event.at("args");
        found.slice.cpu_ns = ns(args.at("cpu_us"));
        if (*lane != Lane::compute && *lane != Lane::local) {
            found.slice.order = index(args.at("order"));
        }
        found.action = index(args.at("action"));
        if (const auto waited = args.find("waited_action"); waited != args.end()) {
            found.waited_for = index(*waited);
        }
        slices_.push_back(std::move(found));
    }

    void counter(const Json& event) {
        const uint16_t of = rank(event);
        if (memory_.size() <= of) memory_.resize(of + 1U);
        memory_[of].push_back({.at_ns = ns(event.at("ts")),
                               .purpose = 0,
                               .bytes = event.at("args").at("bytes").get<int64_t>()});
    }

    std::vector<Found> slices_;
    std::vector<std::vector<RecordedRun::MemoryChange>> memory_;  ///< [rank] values, not changes
    int ranks_ = 0;
    size_t events_ = 0;
};

}  // namespace

RecordedRun read_chrome_trace(const std::string& path) {
    const std::string text = read_whole_file(path, kAdvice, kMostFileBytes);
    Reader reader;
    // Depth 1 is the file's object, 2 an event in the list of events.
    const auto keep = [&](int depth, Json::parse_event_t what, Json& value) {
        if (depth != 2 || what != Json::parse_event_t::object_end || !value.contains("ph")) {
            return true;
        }
        reader.event(value);
        return false;
    };
    try {
        const Json rest = Json::parse(text, keep);
        const Json& other = rest.at("otherData");
        RecordedRun run = std::move(reader).take(other.at("title"));
        if (run.slices.empty()) throw std::out_of_range("no slices");
        if (const auto mesh = other.find("mesh"); mesh != other.end()) {
            run.mesh = mesh_of(*mesh, run.ranks);
        }
        return run;
    } catch (const Json::parse_error& error) {
        const std::string what = error.what();  // "[json...] parse error at line 1, column 2: ..."
        const size_t at = what.find("at line");
        throw InputFileError(path + ": " + (at == std::string::npos ? what : what.substr(at)) +
                             kRemedy);
    } catch (const Json::exception&) {
        throw InputFileError(path + ": is not a trace of VocabPipe; event " +
                             std::to_string(reader.events()) + " or the title does not match" +
                             kRemedy);
    } catch (const std::out_of_range& error) {
        throw InputFileError(path + ": has " + error.what() + " at event " +
                             std::to_string(reader.events()) + kRemedy);
    }
}

}  // namespace vocabpipe
