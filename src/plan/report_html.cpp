// SPDX-License-Identifier: Apache-2.0
#include "src/plan/embedded.hpp"
#include "vocabpipe/plan.hpp"

namespace vocabpipe {

namespace {

constexpr std::string_view kPlace = "/*PLAN*/null";

}  // namespace

std::string plan_html(const Plan& plan) {
    std::string json = plan_json(plan);
    // "</script>" within a name would end the script that holds the JSON.
    for (size_t at = json.find("</"); at != std::string::npos; at = json.find("</", at + 3)) {
        json.replace(at, 2, "<\\/");
    }
    std::string page(embedded::pages().front().text);
    page.replace(page.find(kPlace), kPlace.size(), json);
    return page;
}

}  // namespace vocabpipe
