//! SET, RESET, SHOW, and other small statements about the session.

use super::Printer;
use crate::tree::{
    Discard, Notify, ObjectName, Reset, Set, SetConstraints, Setting, SettingValue, Show, Unlisten,
};

impl Printer {
    pub(super) fn set(&mut self, set: &Set) {
        self.put(if set.is_local { "SET LOCAL " } else { "SET " });
        self.setting(&set.setting);
    }

    pub(super) fn setting(&mut self, setting: &Setting) {
        match setting {
            Setting::Values { values, .. } if matches!(values[..], [SettingValue::Interval { .. }]) => {
                self.put("TIME ZONE ");
                self.setting_value(&values[0]);
            }
            Setting::Values { name, values } => {
                self.object_name(name);
                self.put(" TO ");
                self.list(values, Self::setting_value);
            }
            Setting::Default(name) => {
                self.object_name(name);
                self.put(" TO DEFAULT");
            }
            Setting::FromCurrent(name) => {
                self.object_name(name);
                self.put(" FROM CURRENT");
            }
            Setting::Transaction(modes) => {
                self.put("TRANSACTION ");
                self.transaction_modes(modes);
            }
            Setting::SessionCharacteristics(modes) => {
                self.put("SESSION CHARACTERISTICS AS TRANSACTION ");
                self.transaction_modes(modes);
            }
            Setting::Snapshot(id) => {
                self.put("TRANSACTION SNAPSHOT ");
                self.string(id);
            }
        }
    }

    fn setting_value(&mut self, value: &SettingValue) {
        match value {
            SettingValue::Value(value) => self.utility_value(value),
            SettingValue::Interval { value, fields, precision } => {
                self.put("INTERVAL");
                self.precision(*precision);
                self.put(" ");
                self.string(value);
                if let Some(fields) = fields {
                    self.interval_fields(*fields, None);
                }
            }
        }
    }

    fn name_or_all(&mut self, name: Option<&ObjectName>) {
        match name {
            None => self.put("ALL"),
            Some(name) => self.object_name(name),
        }
    }

    pub(super) fn reset(&mut self, reset: &Reset) {
        self.put("RESET ");
        self.name_or_all(reset.name.as_ref());
    }

    pub(super) fn show(&mut self, show: &Show) {
        self.put("SHOW ");
        self.name_or_all(show.name.as_ref());
    }

    pub(super) fn set_constraints(&mut self, set: &SetConstraints) {
        self.put("SET CONSTRAINTS ");
        if set.constraints.is_empty() {
            self.put("ALL");
        } else {
            self.object_names(&set.constraints);
        }
        self.put(if set.deferred { " DEFERRED" } else { " IMMEDIATE" });
    }

    pub(super) fn discard(&mut self, discard: Discard) {
        self.put(match discard {
            Discard::All => "DISCARD ALL",
            Discard::Temporary => "DISCARD TEMPORARY",
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => "DISCARD SEQUENCES",
        });
    }

    pub(super) fn notify(&mut self, notify: &Notify) {
        self.put("NOTIFY ");
        self.name(&notify.channel);
        if let Some(payload) = &notify.payload {
            self.put(", ");
            self.string(payload);
        }
    }

    pub(super) fn unlisten(&mut self, unlisten: &Unlisten) {
        self.put("UNLISTEN ");
        match &unlisten.channel {
            None => self.put("*"),
            Some(channel) => self.name(channel),
        }
    }
}
