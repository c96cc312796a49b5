// `megalith report`: runs as one HTML page that needs no other file and no network. Its frame is page.html of
// this folder with page.css, curves.js, stacked.js and page.js, which the build puts into the program.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/history.h"

namespace megalith {

// The template's parts, by the build from the files of this folder.
extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;
extern const char* const curves_js;
extern const char* const stacked_js;

// Returns the page of one run, or of several compared, the best first.
std::string report_page(std::vector<History> runs);

}  // namespace megalith
