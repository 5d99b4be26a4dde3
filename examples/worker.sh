#!/usr/bin/env bash
# A complete Tidemill worker for PostgreSQL in bash. It claims runs, executes a command for each, and gives the
# guarantees of `tidemill work` as far as a script can. See `worker.sh --help`.
#
# Values are never part of the SQL text: psql gets them as variables and quotes them (:'run').
set -euo pipefail
export PGCLIENTENCODING=UTF8 PGAPPNAME="${PGAPPNAME:-tidemill worker.sh}" PGCONNECT_TIMEOUT="${PGCONNECT_TIMEOUT:-10}"

usage() {
  cat <<'TEXT'
Usage: worker.sh [options] -- COMMAND [ARGUMENT…]

Claims runs from Tidemill's SQL door and carries each out with COMMAND. The run is given to COMMAND as JSON on
its standard input, and as TIDEMILL_RUN_ID, TIDEMILL_PROJECT, TIDEMILL_ENV, TIDEMILL_ATTEMPT, TIDEMILL_EPOCH,
TIDEMILL_RUN_KIND, TIDEMILL_GIT_SHA and TIDEMILL_GIT_REF. Its output becomes events, its exit code the result: 0 is
success.

Options:
  --name NAME      the name under which to claim; host and process id unless given
  --label LABEL    something that this worker offers; can be repeated
  --project ID     work only for this project; can be repeated
  --schema NAME    the schema of the tables (default: ops)
  --once           carry out one run at most, then end
  --drain          end when there is nothing to claim
  --poll TIME      seconds between two looks for something to claim (default: 2)
  --beat TIME      seconds between two signs of life; a cancel is noticed then (default: 5)
  --lease TIME     seconds without a sign of life after which the run goes to others (default: 60)
  --grace TIME     seconds that the command has to end when it is told to (default: 20)
  --help           show this text

The database is that of psql's variables (PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSFILE, PGSERVICE …), or that
of TIDEMILL_DATABASE=postgres://user:password@host:port/database. COMMAND gets none of them. The login needs to
be a member of the worker role that `tidemill roles create` makes, and nothing more. Somebody has to sweep:
`tidemill sweep --loop`, or a `tidemill work` that connects as the owner.

SIGTERM: no new claim; COMMAND gets SIGTERM and may end within the grace time. If it ends with 0, that is its
result. If not, nothing is reported, and the run goes to somebody else when its lease is over.

Exit codes: 0 drained or stopped · 1 the database cannot be used · 2 wrong use
TEXT
}

log() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

fail() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# --- options

name="${HOSTNAME:-worker}-$$" schema=ops once='' drain='' poll=2 beat=5 lease=60 grace=20
labels=() projects=() command=()
while (($# > 0)); do
  case $1 in
    --help) usage && exit 0 ;;
    --once) once=yes && shift ;;
    --drain) drain=yes && shift ;;
    --name | --label | --project | --schema | --poll | --beat | --lease | --grace)
      (($# > 1)) || fail 2 "$1 needs a value; see --help"
      case $1 in
        --name) name=$2 ;;
        --label) labels+=("$2") ;;
        --project) projects+=("$2") ;;
        --schema) schema=$2 ;;
        *)
          [[ $2 =~ ^[0-9]{1,6}(\.[0-9]{1,3})?$ && ! $2 =~ ^[0.]+$ ]] || fail 2 "$1 is a number of seconds, such as 5"
          declare "${1#--}=$2"
          ;;
      esac
      shift 2
      ;;
    --) shift && command=("$@") && break ;;
    *) fail 2 "\`$1\` is not an option; see --help" ;;
  esac
done
((${#command[@]} > 0)) || fail 2 "there is no command; write it after \`--\`, and see --help"
for program in psql jq timeout; do
  type -P "$program" >/dev/null || fail 1 "\`$program\` is missing"
done

# Converts postgres://… to psql's environment variables, because other users can read a command line.
use_address() {
  local address=$1 authority host
  [[ $address =~ ^postgres(ql)?://(.*)$ ]] || fail 2 "TIDEMILL_DATABASE is not postgres://…, which this worker needs"
  address=${BASH_REMATCH[2]}
  [[ $address != *\?* ]] || fail 2 "TIDEMILL_DATABASE has options after \`?\`; give them as PG… variables instead"
  authority=${address%%/*} host=${authority##*@}
  if [[ $address == */?* ]]; then PGDATABASE=$(decoded "${address#*/}") && export PGDATABASE; fi
  if [[ $authority == *@* ]]; then
    authority=${authority%@*}
    PGUSER=$(decoded "${authority%%:*}") && export PGUSER
    if [[ $authority == *:* ]]; then PGPASSWORD=$(decoded "${authority#*:}") && export PGPASSWORD; fi
  fi
  if [[ $host =~ ^(.*):([0-9]+)$ ]]; then host=${BASH_REMATCH[1]} && export PGPORT=${BASH_REMATCH[2]}; fi
  if [[ -n $host ]]; then PGHOST=$(decoded "$host") && export PGHOST; fi
}

# Decodes percent-encoded text.
decoded() {
  local text=${1//\\/\\\\}
  printf '%b' "${text//%/\\x}"
}

if [[ -n ${TIDEMILL_DATABASE:-} ]]; then use_address "$TIDEMILL_DATABASE"; fi
labels_json=$(jq -nc '$ARGS.positional' --args "${labels[@]}")
projects_json=$(jq -nc '$ARGS.positional' --args "${projects[@]}")

# --- time

# Converts seconds with a fraction to milliseconds.
millis() {
  local part=000
  if [[ $1 == *.* ]]; then part=${1#*.}000; fi
  printf '%s' "$((10#${1%.*} * 1000 + 10#${part:0:3}))"
}

# Sets `now`, in milliseconds.
look_at_clock() { now=$((${EPOCHREALTIME/[.,]/} / 1000)); }

now=0 beat_ms=$(millis "$beat") lease_ms=$(millis "$lease") grace_ms=$(millis "$grace")
lease_secs=$((lease_ms < 1000 ? 1 : lease_ms / 1000))
# Several calls must fit into a lease, so that one hanging call does not lose it.
call_secs=$((lease_secs < 12 ? 2 : lease_secs > 120 ? 20 : lease_secs / 6))

work=$(mktemp -d "${TMPDIR:-/tmp}/tidemill-worker.XXXXXX")
# Never written to: a read with a timeout is a sleep without a child process.
mkfifo -m 600 "$work/never"
exec {never}<>"$work/never"
pause() { IFS= read -r -t "$1" -u "$never" _ || true; }

# --- database calls

# ask RETRY_SECS [--set name=value…] <SQL: executes SQL and retries transient failures for RETRY_SECS seconds. Retries
# are safe: a claim has its request id, an event its key, and a repeated finish is recognised. Returns 75 when the time
# is over, and 65 for a permanent error.
ask() {
  local patience=$1 sql answer error="$work/error.$BASHPID" code wait=0.2 until
  shift
  until=$((SECONDS + patience))
  IFS= read -r -d '' sql || true
  while :; do
    if answer=$(timeout "$call_secs" psql --no-psqlrc --no-password --quiet --no-align --tuples-only \
      --field-separator=' ' --set ON_ERROR_STOP=1 --set VERBOSITY=verbose --set schema="$schema" "$@" \
      2>"$error" <<<"$sql"); then
      printf '%s' "$answer"
      return 0
    else
      code=$?
    fi
    # 3: the server refused a statement. Other codes are connection failures.
    if ((code == 3)) && ! grep -qE '^(psql:[^ ]* )?(ERROR|FATAL): +(08|40001|40P01|53|55P03|57014|57P)' "$error"; then
      log "the database said no: $(head -n 1 "$error")"
      return 65
    fi
    log "the database does not answer: $(head -n 1 "$error")"
    ((SECONDS < until)) || return 75
    pause "$wait"
    case $wait in 0.2) wait=0.5 ;; 0.5) wait=1 ;; 1) wait=2 ;; *) wait=5 ;; esac
  done
}

claim() {
  ask 0 --set worker="$name" --set request="$1" --set labels="$labels_json" --set projects="$projects_json" \
    --set lease="$lease_secs" <<'SQL'
SELECT row_to_json(c) FROM :"schema".claim_next_run(:'worker',
    p_labels := ARRAY(SELECT jsonb_array_elements_text(:'labels'::jsonb)),
    p_projects := (SELECT array_agg(p) FROM jsonb_array_elements_text(:'projects'::jsonb) p),
    p_request_id := :'request', p_lease_secs := :'lease') c;
SQL
}

# Appends a JSON list of events with level, message, payload and key. Prints the number of stale ones.
append() {
  ask "$lease_secs" "${hold[@]}" --set events="$1" <<'SQL'
SELECT count(*) FILTER (WHERE event_id IS NULL)
  FROM (SELECT array_agg(e ->> 'level' ORDER BY n) AS levels, array_agg(e ->> 'message' ORDER BY n) AS messages,
               array_agg(e -> 'payload' ORDER BY n) AS payloads, array_agg(e ->> 'key' ORDER BY n) AS keys
          FROM jsonb_array_elements(:'events'::jsonb) WITH ORDINALITY x (e, n)) l,
       :"schema".append_events(:'run', l.levels, l.messages, l.payloads, l.keys, :'worker', :'epoch');
SQL
}

# Prints `held cancel_requested`, for example `t f`.
heartbeat() {
  ask 0 "${hold[@]}" <<'SQL'
SELECT held, cancel_requested FROM :"schema".heartbeat(:'run', :'worker', :'epoch');
SQL
}

# Prints `t` if the report counts, and `f` if this worker no longer holds the run.
finish() {
  ask "$lease_secs" "${hold[@]}" --set status="$1" --set metadata="$2" <<'SQL'
SELECT :"schema".finish_run(:'run', :'status', :'metadata', :'worker', :'epoch');
SQL
}

# --- one run

pid='' beater='' stopping=''

# Succeeds while the main process of the command runs.
is_running() { [[ -n $pid ]] && kill -0 "$pid" 2>/dev/null; }

# Sends a signal to the command and all its children.
signal() { kill -"$1" -- "-$pid" 2>/dev/null || true; }

# Stops the command and stores the reason: cancelled, lost, timed-out or shutdown. Lost overrides the others.
stop() {
  if [[ ! -e $work/stop || $1 == lost ]]; then printf '%s' "$1" >"$work/stop"; fi
  if [[ $1 == lost ]]; then signal KILL; else signal TERM; fi
}

told() { cat "$work/stop" 2>/dev/null || true; }

# Runs in the background beside the command. Sends heartbeats, and stops the command after a cancel, a timeout, a lost or
# doubtful lease, or the death of the worker.
keep() {
  trap - EXIT TERM INT
  local timeout=$1 began contact beat_at kill_at='' answer stat parent
  look_at_clock
  began=$now contact=$now beat_at=$((now + beat_ms))
  while :; do
    pause 0.2
    look_at_clock
    # If our parent process has changed, the worker is dead.
    read -r stat <"/proc/$BASHPID/stat"
    read -r _ parent _ <<<"${stat##*) }"
    if [[ $parent != "$$" ]]; then
      stop lost
      rm -rf "$work"
      return
    fi
    if [[ -n $timeout && -z $kill_at ]] && ((now - began >= timeout * 1000)); then stop timed-out; fi
    if [[ -z $kill_at && -e $work/stop ]]; then kill_at=$((now + grace_ms)); fi
    if [[ -n $kill_at ]] && ((now >= kill_at)); then signal KILL; fi
    if ((now < beat_at)); then continue; fi
    if answer=$(heartbeat); then
      contact=$now
      case $answer in
        f*) stop lost && return ;;
        *t) if [[ ! -e $work/stop ]]; then stop cancelled; fi ;;
      esac
    fi
    look_at_clock
    # The lease expires soon and could not be renewed: stop the command before another worker can take the run.
    if ((now - contact >= lease_ms * 3 / 4)); then stop lost && return; fi
    beat_at=$((now + beat_ms))
  done
}

# Converts lines to events, each with its own key. Long lines are split: an event holds 8 KB, and jq 1.6 breaks
# characters of longer ones. Invalid UTF-8 becomes U+FFFD; bash drops NUL.
events() {
  local LC_ALL=C.UTF-8 text code=0 is_split=''
  while ((code == 0)); do
    IFS= read -r -n 1000 text 2>/dev/null || code=$?
    if ((${#text} == 1000)); then
      printf 'piece %s\n' "$text"
      is_split=yes
    elif [[ -n $is_split ]]; then
      printf 'last %s\n' "$text"
      is_split=''
    elif ((code == 0)) || [[ -n $text ]]; then
      printf 'whole %s\n' "$text"
    fi
  done | jq -nRc --unbuffered 'foreach inputs as $line (0; . + 1; ($line | index(" ")) as $at
    | {level: "info", message: $line[$at + 1:], key: "line-\(.)", payload: ({stream: "output"}
      + if $line[:$at] == "whole" then {} else {part: $line[:$at]} end)})'
}

# Reads the output of the command until its end. Events are written in batches, about once a second.
follow() {
  local output=$1 line rest='' batch='' count=0 since=$SECONDS code late quiet=0
  while :; do
    code=0
    IFS= read -r -t 0.5 -u "$output" line || code=$?
    if ((code == 0)); then
      batch+=${batch:+,}$rest$line rest='' quiet=0
      count=$((count + 1))
    elif ((code > 128)); then
      rest+=$line quiet=$((quiet + 1))
    fi
    # The command has ended, but a child process keeps the output open.
    if ((code > 128 && quiet >= 2)) && ! is_running; then signal KILL && quiet=0; fi
    if [[ -n $batch ]] && ((code != 0 || count >= 200 || ${#batch} >= 30000 || SECONDS > since)); then
      if [[ $(told) != lost ]]; then
        late=$(append "[$batch]") || late=unknown
        case $late in
          0) jq -rn --argjson batch "[$batch]" '$batch[-20:][].message' >>"$work/tail" ;;
          unknown) log "events of run $run were not written" ;;
          *) stop lost ;;
        esac
      fi
      batch='' count=0 since=$SECONDS
    fi
    ((code == 0 || code > 128)) || return 0
  done
}

# Metadata of the finish call: exit code or signal, and for a failure the reason and the last lines.
metadata() {
  local code=$1 why=$2
  tail -n 20 "$work/tail" | jq -nRc --argjson code "$code" --arg why "$why" --arg timeout "$timeout" '
    [inputs | .[:1000]] as $tail
    | (if $code > 128 then {signal: ($code - 128)} else {exit_code: $code} end)
    + (if $why == "timed-out" then {error: "the run took longer than \($timeout) s", output_tail: $tail}
       elif $why == "cancelled" or $code == 0 then {}
       else {error: (if $code > 128 then "killed by signal \($code - 128)" else "exit code \($code)" end),
             output_tail: $tail} end)'
}

# The command gets the run, but no database credentials.
start_command() {
  export TIDEMILL_RUN_ID="$run" TIDEMILL_EPOCH="$epoch"
  TIDEMILL_PROJECT=$(jq -r .project_id <<<"$claimed") && export TIDEMILL_PROJECT
  TIDEMILL_ENV=$(jq -r '.env_id | sub("^[^/]*/"; "")' <<<"$claimed") && export TIDEMILL_ENV
  TIDEMILL_ATTEMPT=$(jq -r .attempt <<<"$claimed") && export TIDEMILL_ATTEMPT
  TIDEMILL_RUN_KIND=$(jq -r .kind <<<"$claimed") && export TIDEMILL_RUN_KIND
  unset TIDEMILL_GIT_SHA TIDEMILL_GIT_REF
  if jq -e .git_sha <<<"$claimed" >/dev/null; then
    TIDEMILL_GIT_SHA=$(jq -r .git_sha <<<"$claimed") && export TIDEMILL_GIT_SHA
  fi
  if jq -e .git_ref <<<"$claimed" >/dev/null; then
    TIDEMILL_GIT_REF=$(jq -r .git_ref <<<"$claimed") && export TIDEMILL_GIT_REF
  fi
  # Job control starts the command in its own process group, so that the whole group can be signalled.
  set -m
  env -u TIDEMILL_DATABASE -u DATABASE_URL -u PGHOST -u PGHOSTADDR -u PGPORT -u PGUSER -u PGDATABASE -u PGPASSWORD \
    -u PGPASSFILE -u PGSERVICE -u PGSERVICEFILE -u PGAPPNAME -u PGCONNECT_TIMEOUT -u PGCLIENTENCODING \
    "${command[@]}" <<<"$claimed" >"$work/output" 2>&1 {never}<&- {output}<&- &
  pid=$!
  set +m
}

carry_out() {
  local claimed=$1 run epoch timeout started output code=0 why status answer hold
  run=$(jq -r .run_id <<<"$claimed") epoch=$(jq -r .epoch <<<"$claimed")
  timeout=$(jq -r '.timeout_secs // ""' <<<"$claimed")
  hold=(--set worker="$name" --set run="$run" --set epoch="$epoch")
  log "claimed run $run"
  # The first event starts the run.
  started=$(jq -nc --arg worker "$name" \
    '[{level: "info", message: "Command started", payload: {worker: $worker}, key: "started"}]')
  answer=$(append "$started") || answer=unknown
  if [[ $answer != 0 ]]; then
    log "run $run was not begun: it belongs to others by now, or the database did not say"
    return 0
  fi

  rm -f "$work/stop" "$work/output"
  : >"$work/tail"
  mkfifo -m 600 "$work/output"
  exec {output}< <(events <"$work/output")
  start_command
  keep "$timeout" &
  beater=$!
  if [[ -n $stopping ]]; then stop shutdown; fi
  follow "$output"
  exec {output}<&-
  # A signal to this worker interrupts `wait`; a second call returns the same exit code.
  for _ in 1 2 3 4 5; do
    code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    is_running || break
  done
  signal KILL
  { kill "$beater" && wait "$beater"; } 2>/dev/null || true
  pid='' beater=''

  why=$(told)
  case $why in
    lost)
      log "run $run belongs to others by now; its command was stopped, and nothing more is written"
      return 0
      ;;
    cancelled) status=cancelled ;;
    timed-out) status=failed ;;
    *) if ((code == 0)); then status=success; else status=failed; fi ;;
  esac
  if [[ $why == shutdown && $status == failed ]]; then
    log "run $run was interrupted; another worker carries its request on when its lease is over"
    return 0
  fi
  answer=$(finish "$status" "$(metadata "$code" "$why")") || answer=unknown
  case $answer in
    t) log "run $run ended: $status" ;;
    f) log "run $run belongs to others by now; its end ($status) changed nothing" ;;
    *) log "the end of run $run ($status) was not recorded" ;;
  esac
}

# --- the loop

on_stop() {
  stopping=yes
  if is_running; then stop shutdown; fi
}

on_exit() {
  if is_running; then signal KILL; fi
  if [[ -n $beater ]]; then kill "$beater" 2>/dev/null || true; fi
  rm -rf "$work"
}

trap on_stop TERM INT
trap on_exit EXIT

# Checks the address and the password before the first claim.
hello=$(ask 0 <<<"SELECT has_schema_privilege(:'schema', 'USAGE');") || fail 1 "the database cannot be used"
[[ $hello == t ]] || fail 1 "this login may not use the schema $schema; grant it the worker role"
log "worker $name waits for runs"
request=''
while [[ -z $stopping ]]; do
  # Keep the request id until there is a response: a retry returns runs whose first response was lost.
  request=${request:-$(</proc/sys/kernel/random/uuid)}
  code=0
  claimed=$(claim "$request") || code=$?
  if ((code == 75)); then
    pause "$poll"
    continue
  elif ((code != 0)); then
    fail 1 "runs cannot be claimed"
  fi
  request=''
  if [[ -n $claimed ]]; then
    carry_out "$claimed"
    [[ -z $once ]] || break
  elif [[ -n $once || -n $drain ]]; then
    break
  else
    pause "$poll"
  fi
done
log "worker $name ends"
