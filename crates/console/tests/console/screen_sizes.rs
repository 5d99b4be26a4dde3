//! Layout checks on a desktop and a phone, light and dark: nothing is cut off, and all controls can be pressed. With
//! `TIDEMILL_SCREENSHOTS=DIR`, a screenshot of each is saved there.
//!
//! Each page is loaded once and then checked in all sizes, which saves time.

use crate::driver::Browser;
use serde_json::json;
use std::path::PathBuf;

/// Environment variable with the directory for screenshots.
const SCREENSHOTS_VARIABLE: &str = "TIDEMILL_SCREENSHOTS";

/// Window sizes of a phone, a small window and a desktop. The desktop is last, so the page keeps that size. Screenshots
/// are taken of sizes with a name.
const SIZES: [(u32, u32, Option<&str>); 3] =
    [(360, 740, Some("narrow")), (500, 900, None), (1_280, 900, Some("wide"))];

/// Finds horizontal overflow and controls that cannot be pressed: each control is scrolled to, and must be the element
/// at its own centre. Details are opened one after the other.
const PROBLEMS: &str = "
    const problems = [];
    const page = document.scrollingElement;
    const describe = (one) => one.outerHTML.slice(0, 160);
    const checkWidth = (where) => {
      if (page.scrollWidth > innerWidth) problems.push(`${page.scrollWidth - innerWidth} pixels too wide ${where}`);
    };
    const checkPress = (within) => {
      for (const one of within.querySelectorAll('button, a.button, summary, input, select, textarea')) {
        if (one.type === 'hidden' || !one.checkVisibility()) continue;
        one.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
        const box = one.getBoundingClientRect();
        const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        if (box.left < 0 || box.right > innerWidth + 1 || !one.contains(hit))
          problems.push(`cannot be pressed: ${describe(one)}`);
      }
    };
    checkWidth('as it is');
    checkPress(document.body);
    for (const details of document.querySelectorAll('details:not([open])')) {
      if (!details.checkVisibility()) continue;
      details.open = true;
      checkWidth(`with ${describe(details)} open`);
      checkPress(details);
      details.open = false;
    }
    scrollTo(0, 0);
    return problems;";

/// Fails if something on the current page is cut off, or if the browser's console contains an error.
pub(crate) async fn fits(browser: &Browser, name: &str) {
    for (width, height, size) in SIZES {
        browser.resize(width, height).await;
        for light in ["dark", "light"] {
            browser.set_dark_mode(light == "dark").await;
            let problems = browser.run(PROBLEMS).await;
            assert_eq!(problems, json!([]), "{name}, {width} pixels wide, on {}", browser.url().await);
            if let Some(size) = size {
                save_screenshot(browser, &format!("{size}-{light}-{name}")).await;
            }
        }
    }
    browser.assert_no_errors().await;
}

/// Saves a screenshot if the environment variable is set.
pub(crate) async fn save_screenshot(browser: &Browser, name: &str) {
    if let Some(directory) = std::env::var_os(SCREENSHOTS_VARIABLE).map(PathBuf::from) {
        std::fs::create_dir_all(&directory).expect("the directory is created");
        browser.screenshot(&directory.join(format!("{name}.webp"))).await;
    }
}
